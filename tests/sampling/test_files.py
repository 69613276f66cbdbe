"""Data files are read without executing code in them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from gradverify.case import DataFile, TensorInput
from gradverify.errors import InputError
from gradverify.sampling.draw import draw
from gradverify.sampling.files import read_tensor


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("code in a data file was executed",))


def test_one_tensor(tmp_path: Path) -> None:
    wanted = torch.arange(6.0).reshape(2, 3)
    torch.save(wanted, tmp_path / "a.pt")
    torch.save({"w": wanted}, tmp_path / "b.pt")
    np.save(tmp_path / "c.npy", wanted.numpy())
    np.save(tmp_path / "d.npy", wanted.numpy().astype(">f4"))
    np.savez(tmp_path / "e.npz", w=wanted.numpy())
    np.savez(tmp_path / "f.npz", w=wanted.numpy(), v=np.zeros(2))
    for name in ("a.pt", "b.pt", "c.npy", "d.npy", "e.npz", "f.npz:w"):
        assert torch.equal(read_tensor(str(tmp_path / name)), wanted)


def test_floating_values_get_the_dtype_of_the_case(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, dtype=np.float32))
    np.save(tmp_path / "i.npy", np.ones(3, dtype=np.int32))
    np.save(tmp_path / "z.npy", np.ones(3, dtype=np.complex64))
    for name, dtype in (("x", torch.float64), ("i", torch.int32), ("z", torch.complex128)):
        description = TensorInput(origin=DataFile(path=str(tmp_path / f"{name}.npy")))
        tensor = draw(description, name="x", key="k", seed=0, dtype="float64", device="cpu")
        assert tensor.dtype is dtype
        assert tensor.requires_grad is (name != "i")


def test_several_tensors_need_a_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", v=np.zeros(2), w=np.zeros(3))
    with pytest.raises(InputError, match=r"holds 2 tensors; name one of them as data.npz:NAME \(v, w\)"):
        read_tensor(str(tmp_path / "data.npz"))
    with pytest.raises(InputError, match="has no `u`"):
        read_tensor(str(tmp_path / "data.npz:u"))


def test_only_the_array_that_is_named_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", v=np.array([{}], dtype=object), w=np.ones(3))
    assert torch.equal(read_tensor(str(tmp_path / "data.npz:w")), torch.ones(3, dtype=torch.float64))
    with pytest.raises(InputError, match=r"has no `u`; name one of them as data.npz:NAME \(v, w\)"):
        read_tensor(str(tmp_path / "data.npz:u"))
    with pytest.raises(InputError, match=r"data.npz: Object arrays cannot be loaded"):
        read_tensor(str(tmp_path / "data.npz:v"))


def test_code_in_a_file_is_not_executed(tmp_path: Path) -> None:
    torch.save(Bomb(), tmp_path / "a.pt")
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "c.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    for name in ("a.pt", "b.npy", "c.npy"):
        with pytest.raises(InputError, match=name):
            read_tensor(str(tmp_path / name))


def test_message_does_not_suggest_executing_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(2), "b": Bomb()}, "zipped.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Bomb(), protocol=2))
    Path("text.pth").write_bytes(b"garbage")
    for name in ("zipped.pt", "plain.pt", "text.pth"):
        with pytest.raises(InputError) as caught:
            read_tensor(str(tmp_path / name))
        assert str(caught.value) == f"{name}: holds more than tensors, or none; save tensors only, with torch.save"


def test_files_without_a_tensor_are_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    np.save(tmp_path / "text.npy", np.array(["a"]))
    (tmp_path / "broken.npz").write_bytes(b"PK")
    for name, message in (
        ("list.pt", "holds a value of type list, not a tensor"),
        ("text.npy", "an array of <U1 is not a tensor"),
        ("broken.npz", "broken.npz: "),
        ("absent.npy", "No such file"),
        ("data.csv", "must end in .pt, .pth, .npy, .npz"),
    ):
        with pytest.raises(InputError, match=message):
            read_tensor(str(tmp_path / name))
