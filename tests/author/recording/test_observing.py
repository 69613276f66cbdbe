"""Calls of hand-written Functions in a process, as they are noted while it is observed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import gradverify
from gradverify.author.recording.notes import (
    Notes,
    SeenList,
    SeenOther,
    SeenPlain,
    SeenSize,
    SeenTensor,
    SeenValues,
    Signature,
    read_notes,
)
from gradverify.author.recording.observing import observed
from tests.author.recording import ops
from tests.author.recording.making import ROOT

pytestmark = pytest.mark.slow


class Seen:
    """The notes of a block, once it has ended."""

    def __init__(self) -> None:
        self.notes = Notes(signatures=(), uncounted={}, failures=())

    @property
    def only(self) -> Signature:
        assert self.notes.failures == ()
        (signature,) = self.notes.signatures
        return signature

    @property
    def names(self) -> list[str]:
        return [signature.subject.name for signature in self.notes.signatures]

    def values(self, name: str = "x") -> SeenValues:
        return self.only.values[name][0]


@pytest.fixture
def observing(tmp_path: Path) -> Any:
    @contextmanager
    def block(*, keeps_values: bool = False) -> Iterator[Seen]:
        seen = Seen()
        notes = tmp_path / f"notes{len(list(tmp_path.iterdir()))}"
        notes.mkdir()
        with observed(notes, keeps_values=keeps_values):
            yield seen
        seen.notes = read_notes(notes)

    return block


def test_a_call_is_noted_with_its_arguments(observing: Any) -> None:
    with observing() as seen:
        ops.power(torch.ones(3, 4, dtype=torch.float64, requires_grad=True), 2)
    assert seen.only.subject.module == "tests.author.recording.ops"
    assert seen.only.subject.name == "Power"
    assert Path(seen.only.subject.file).name == "ops.py"
    assert seen.only.calls == 1
    assert dict(seen.only.arguments) == {
        "x": SeenTensor(shape=(3, 4), dtype="float64", device="cpu", layout="contiguous", requires_grad=True),
        "exponent": SeenPlain(value=2),
    }


def test_values_of_later_calls_are_looked_at_now_and_then(observing: Any) -> None:
    with observing() as seen:
        for number in range(1, 41):
            ops.power(torch.full((3,), float(number), requires_grad=True), 2)
    assert seen.only.calls == 40
    assert [values.high for values in seen.only.values["x"]] == [*range(1, 21), 32]


def test_nothing_is_noted_before_and_after(observing: Any) -> None:
    ops.power(torch.ones(3), 2)
    with observing() as seen:
        pass
    ops.power(torch.ones(3), 2)
    assert seen.notes.signatures == ()


@pytest.mark.parametrize(
    ("layout", "tensor"),
    [
        ("contiguous", torch.ones(3, 4)),
        ("contiguous", torch.ones(())),
        ("transposed", torch.ones(4, 3).mT),
        ("transposed", torch.ones(2, 4, 3).mT),
        ("strided", torch.ones(3, 8)[:, ::2]),
        ("strided", torch.ones(2, 3, 4).permute(2, 0, 1)),
        ("expanded", torch.ones(1, 4).expand(3, 4)),
        ("channels_last", torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)),
        ("channels_last", torch.ones(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)),
    ],
)
def test_layout_of_a_tensor(observing: Any, layout: str, tensor: torch.Tensor) -> None:
    with observing() as seen:
        ops.power(tensor, 2)
    found = seen.only.arguments["x"]
    assert isinstance(found, SeenTensor) and found.layout == layout


def test_arguments_of_every_form(observing: Any) -> None:
    with observing() as seen:
        ops.Spread.apply(torch.ones(1, 3), torch.Size([4, 3]), torch.float64)
        ops.Join.apply(0, torch.ones(2), torch.ones(3))
        ops.Configured.apply(torch.ones(2), object())
        ops.Configured.apply(torch.ones(2), (1, "a", None, 2.5))
        ops.Configured.apply(torch.ones(2), torch.device("cpu"))
        ops.Configured.apply(torch.ones(2).to_sparse(), [torch.ones(2), 3])
    found = [dict(signature.arguments) for signature in seen.notes.signatures]
    assert found[0]["size"] == SeenSize(size=(4, 3))
    assert found[0]["dtype"] == SeenPlain(value={"dtype": "float64"})
    assert isinstance(found[1]["parts"], SeenList) and len(found[1]["parts"].items) == 2
    assert found[2]["options"] == SeenOther(kind="object")
    assert found[3]["options"] == SeenPlain(value={"tuple": [1, "a", None, 2.5]})
    assert found[4]["options"] == SeenPlain(value={"device": "cpu"})
    assert found[5]["x"] == SeenOther(kind="sparse coo tensor")
    assert isinstance(found[5]["options"], SeenList) and found[5]["options"].items[1] == SeenPlain(value=3)


def test_a_call_that_raises_is_taken_back(observing: Any) -> None:
    with observing() as seen:
        with pytest.raises(ValueError, match="a negative exponent"):
            ops.power(torch.ones(3), -1)
        ops.power(torch.ones(3), 1)
    assert seen.only.arguments["exponent"] == SeenPlain(value=1)


def test_operators_are_noted_once_with_and_without_gradient(observing: Any) -> None:
    with observing() as seen:
        ops.twice(torch.ones(3, requires_grad=True), 2.0)
        torch.ops.recorded.twice(torch.ones(3, requires_grad=True), 2.0)
        ops.twice(torch.ones(3), 2.0)
        ops.total([ops.real(2), ops.real(2)])
    assert [(each.subject.name, each.calls) for each in seen.notes.signatures] == [
        ("twice", 2),
        ("twice", 1),
        ("total", 1),
    ]
    assert list(seen.notes.signatures[0].arguments) == ["x", "factor"]
    parts = seen.notes.signatures[2].arguments["parts"]
    assert isinstance(parts, SeenList) and len(parts.items) == 2


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (lambda x: torch.ops.recorded.shifted(x, 2.0), "shifted", ["x", "by"]),
        (lambda x: torch.ops.recorded.shifted.default(x, by=2.0), "shifted", ["x", "by"]),
        (lambda x: torch.ops.recorded.shifted(x, x[0]), "shifted.row", ["x", "row"]),
        (lambda x: torch.ops.recorded.shifted.row(x, x[0]), "shifted.row", ["x", "row"]),
        (lambda x: torch.ops.recorded.outer(x), "outer", ["x"]),
    ],
)
def test_operators_of_a_library_are_noted(observing: Any, call: Any, name: str, arguments: list[str]) -> None:
    with observing() as seen:
        call(ops.real(3, 4))
    first = seen.notes.signatures[0]
    assert (first.subject.name, first.calls) == (f"torch.ops.recorded.{name}", 1)
    assert list(first.arguments) == arguments
    (place,) = [each for each in seen.notes.places[first.subject] if each.defines]
    assert (place.module, place.name) == ("tests.author.recording.ops", f"torch.ops.recorded.{name}")
    assert seen.notes.failures == ()


def test_an_operator_that_its_own_kernel_calls_is_noted_once(observing: Any) -> None:
    with observing() as seen:
        torch.ops.recorded.shifted(ops.real(3), 2.0)
        torch.ops.recorded.outer(ops.real(3))
    found = [(each.subject.name.rpartition(".")[2], each.calls) for each in seen.notes.signatures]
    assert found == [("shifted", 1), ("_Shifted", 1), ("outer", 1), ("shifted", 1), ("twice", 1)]


def test_an_operator_under_a_mode_and_a_subclass_is_noted_once(observing: Any) -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Subclass(torch.Tensor):
        pass

    with observing() as seen, Mode():
        ops.twice(ops.real(3), 2.0)
        torch.ops.recorded.twice(ops.real(4).as_subclass(Subclass), 2.0)
    assert [each.calls for each in seen.notes.signatures] == [1, 1]


def test_an_operator_that_torchscript_calls_is_noted(observing: Any) -> None:
    unit = torch.jit.CompilationUnit("def call(x):\n  return torch.ops.recorded.twice(x, 2.0)\n")
    with observing() as seen:
        unit.call(ops.real(3))
    assert seen.only.subject.name == "twice"


def test_operators_without_a_gradient_and_those_of_torch_are_left_out(observing: Any) -> None:
    with observing() as seen:
        torch.ops.recorded.plain(ops.real(3).detach())
        torch.ops.aten.sin(ops.real(3))
        torch.ops.aten.add.Tensor(ops.real(3), ops.real(3))
    assert (seen.notes.signatures, seen.notes.failures) == ((), ())


def test_an_operator_that_raises_is_taken_back(observing: Any) -> None:
    with observing() as seen:
        with pytest.raises(ValueError, match="a negative shift"):
            torch.ops.recorded.shifted(ops.real(3), -1.0)
        with pytest.raises(RuntimeError, match="failed to match any schema"):
            torch.ops.recorded.shifted(ops.real(3), "far")
        with pytest.raises(RuntimeError, match="missing value for argument 'factor'"):
            ops.twice(ops.real(3))
    assert (seen.notes.signatures, seen.notes.failures) == ((), ())


def test_every_namespace_of_torch_is_known() -> None:
    code = (
        "import torch, torch.distributed, torch._inductor, gradverify_observer\n"
        "import gradverify.author.finding.registered as registered\n"
        "names = {name.partition('::')[0] for name in torch._C._dispatch_get_all_op_names()}\n"
        "print(sorted((names | registered._OWN | registered._LATER) - set(gradverify_observer._OF_TORCH)))"
    )
    startup = Path(gradverify.__file__).parent / "author" / "recording" / "startup"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(startup), str(ROOT)])}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ran.stdout == "[]\n", ran.stderr


def test_a_local_class_has_no_name(observing: Any) -> None:
    class Local(ops.Configured):
        pass

    with observing() as seen:
        Local.apply(torch.ones(2), None)
    assert seen.only.subject.reason == (
        "it is defined inside `test_a_local_class_has_no_name`, where no spec can name it; move it out of there"
    )


def test_a_local_class_is_named_as_in_its_module(observing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(ops.Configured):
        pass

    monkeypatch.setitem(globals(), "made_here", Local)
    with observing() as seen:
        Local.apply(torch.ones(2), None)
    assert (seen.only.subject.name, seen.only.subject.reason) == ("made_here", "")


def test_functions_of_torch_are_left_out(observing: Any) -> None:
    with observing() as seen:
        checkpoint(torch.sin, torch.ones(3, requires_grad=True), use_reentrant=True)
    assert seen.notes.signatures == ()


def test_own_calls_of_gradverify_are_left_out(observing: Any) -> None:
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with observing() as seen:
        assert gradverify.verify(ops.Power, (x, 2))
        gradverify.explore(ops.Power, (x, 2), budget=2)
    assert seen.notes.signatures == ()


def test_calls_under_torch_func_are_noted(observing: Any) -> None:
    with observing() as seen:
        torch.func.grad(lambda x: ops.Join.apply(0, x, x).sum())(torch.arange(3.0))
        out = ops.power(ops.real(3), 3)
        out.sum().backward()
    assert seen.names == ["Join", "Power"]
    joined = seen.notes.signatures[0]
    assert joined.values["parts[0]"][0].high == 2.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
def test_traced_calls_are_left_out_and_compiled_code_runs(observing: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    with observing() as seen:
        compiled = torch.compile(lambda x: ops.power(x, 2), fullgraph=True, backend="eager")
        compiled(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]
    assert seen.notes.signatures == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_operators_that_compiled_code_calls_are_noted(observing: Any, backend: str) -> None:
    x = torch.ones(3, requires_grad=True)
    with observing() as seen:
        compiled = torch.compile(lambda x: torch.ops.recorded.outer(x), fullgraph=True, backend=backend)
        compiled(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]
    assert seen.notes.signatures[0].subject.name == "torch.ops.recorded.outer"
    assert [each.calls for each in seen.notes.signatures] == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: torch.ops.recorded.unknown(2 * x), "torch.ops.recorded.unknown"),
        (lambda x: ops.Segments.apply(x, torch.tensor([1, 3])), "Segments"),
    ],
)
def test_the_compiler_does_not_look_into_the_observer(observing: Any, call: Any, name: str) -> None:
    def compiled_frames() -> int:
        torch._dynamo.reset()
        before = torch._dynamo.utils.counters["frames"]["total"]
        compiled = torch.compile(call, backend="eager")
        compiled(ops.real(3)).sum().backward()
        return int(torch._dynamo.utils.counters["frames"]["total"] - before)

    with observing() as seen:
        observed = compiled_frames()
    assert observed == compiled_frames()
    assert (seen.only.subject.name, seen.only.calls) == (name, 1)


def test_a_traced_call_that_raises_takes_no_call_back(observing: Any) -> None:
    with observing() as seen:
        torch.ops.recorded.unknown(ops.real(3))
        with FakeTensorMode() as mode, pytest.raises(RuntimeError, match="unknown"):
            torch.ops.recorded.unknown(mode.from_tensor(ops.real(3)))
    assert seen.only.calls == 1


@pytest.mark.slow
def test_exported_operators_are_those_of_the_code(observing: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.ops.recorded.outer(x)
            return found

    with observing() as seen:
        program = torch.export.export(Model(), (torch.ones(3),))
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.recorded.outer.default]
    assert seen.notes.signatures == ()


def test_threads_and_forked_processes_are_noted(observing: Any) -> None:
    with observing() as seen:
        threads = [threading.Thread(target=ops.power, args=(torch.ones(3), 2)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process = os.fork()
        if not process:
            ops.power(torch.ones(3), 2)
            ops.power(torch.ones(5), 2)
            os._exit(0)
        os.waitpid(process, 0)
    assert [each.calls for each in seen.notes.signatures] == [5, 1]


def test_many_signatures_are_counted_together(observing: Any) -> None:
    with observing() as seen:
        for exponent in range(310):
            ops.Configured.apply(torch.ones(1), exponent)
    assert len(seen.notes.signatures) == 300
    assert list(seen.notes.uncounted.values()) == [10]


def test_blocks_may_be_nested(observing: Any) -> None:
    with observing() as outer:
        ops.power(torch.ones(1), 2)
        with observing() as inner:
            ops.power(torch.ones(2), 2)
        ops.power(torch.ones(3), 2)
    assert len(outer.notes.signatures) == 3
    assert len(inner.notes.signatures) == 1


def test_a_lost_folder_does_not_disturb_the_command(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    with observed(notes, keeps_values=False):
        shutil.rmtree(notes)
        assert ops.power(torch.ones(3), 2).tolist() == [1.0, 1.0, 1.0]
        assert torch.ops.recorded.outer(torch.ones(3)).tolist() == [4.0, 4.0, 4.0]


def test_values_are_not_looked_at_while_cuda_captures_a_graph(observing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with observing(keeps_values=True) as seen, monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        ops.Lookup.apply(ops.real(4, 2), torch.tensor([3, 1]))
    assert (seen.only.calls, seen.only.values, seen.only.kept) == (1, {}, {})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_graph_that_cuda_captures_can_be_replayed(observing: Any) -> None:
    x = torch.full((3,), 3.0, device="cuda")
    ops.power(x, 2)
    graph = torch.cuda.CUDAGraph()
    with observing() as seen, torch.cuda.graph(graph):
        squared = ops.power(x, 2)
    graph.replay()
    torch.cuda.synchronize()
    assert squared.tolist() == [9.0, 9.0, 9.0]
    assert seen.only.calls == 1


def test_tensors_and_random_numbers_stay_as_they_were(observing: Any) -> None:
    x = ops.real(40, 30)
    before, version = x.detach().clone(), x._version
    state = torch.get_rng_state()
    with observing():
        ops.power(x, 2)
    assert torch.equal(x, before) and x._version == version and x.grad is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.full((5,), 2.0), {"low": 2.0, "high": 2.0, "std": 0.0}),
        (torch.tensor([0.5, float("nan"), 1.5]), {"low": 0.5, "high": 1.5, "is_finite": False}),
        (torch.linspace(0, 1, 9), {"is_sorted": True}),
        (torch.eye(3) + 0.5, {"structure": "positive_definite"}),
        (torch.tensor([[0.0, 2.0], [2.0, 0.0]]), {"structure": "symmetric"}),
        (torch.tensor([[1.0, 0.0], [2.0, 3.0]]), {"structure": "triangular"}),
        (torch.tensor([[0.25, 0.75], [0.5, 0.5]]), {"structure": "simplex"}),
        (torch.tensor([[0.25, 0.7], [0.5, 0.5]]), {"structure": ""}),
        (torch.tensor([3, 1, 3]), {"low": 1, "high": 3, "repeats": True}),
        (torch.tensor([-100, 1, 3]), {"low": -100, "least": 1}),
        (torch.tensor([2, 0, 1]), {"is_permutation": True, "repeats": False}),
        (torch.tensor([0, 3, 9]), {"is_sorted": True, "is_permutation": False}),
        (torch.tensor([True, False]), {"low": 0, "high": 1, "mean": 0.5}),
        (torch.ones(2, dtype=torch.complex64) * 1j, {"low": 0.0, "high": 1.0}),
        (torch.ones(300, 400)[:, ::3], {"low": 1.0}),
    ],
)
def test_kind_of_values(observing: Any, tensor: torch.Tensor, expected: dict[str, Any]) -> None:
    with observing() as seen:
        ops.Configured.apply(tensor, None)
    found = seen.values()
    assert {name: getattr(found, name) for name in expected} == expected


def test_range_of_whole_numbers_is_that_of_all_of_them(observing: Any) -> None:
    ids = torch.zeros(100_000, dtype=torch.int64)
    ids[54_321] = 999
    with observing() as seen:
        ops.Configured.apply(ids, None)
    assert seen.values().high == 999


def test_values_are_kept_if_they_are_asked_for(observing: Any) -> None:
    with observing(keeps_values=True) as seen:
        ops.Lookup.apply(ops.real(4, 2), torch.tensor([3, 1]))
    assert list(seen.only.kept) == ["ids"]
    assert torch.load(seen.only.kept["ids"], weights_only=True).tolist() == [3, 1]
