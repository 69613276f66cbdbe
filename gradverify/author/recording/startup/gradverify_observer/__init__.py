"""Notes every call of a hand-written Function in this process, and in the processes that it starts.

This package runs inside other people's commands. It imports the standard library alone, waits until the command
imports torch, and lets no exception out. It must run on every Python that torch runs on.
"""

from __future__ import annotations

import os
import sys

from gradverify_observer.hook import Note, call_when_imported, instrument

TYPE_CHECKING = False  # to import typing takes milliseconds, in every Python process of the command
if TYPE_CHECKING:
    from typing import Any

FOLDERS = "GRADVERIFY_RECORD"  # environment variable: absolute folders for notes, joined by os.pathsep
VALUES = "GRADVERIFY_RECORD_VALUES"  # environment variable: "1" if whole numbers and masks are kept
_FUNCTIONS = "torch.autograd.function"
_OPERATORS = "torch._ops"
_COMPILER = "torch._dynamo.trace_rules"
_OPERATOR_CLASSES = ("OpOverloadPacket", "OpOverload", "TorchBindOpOverload")
_OF_TORCH = (  # namespaces of operators
    "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_debug", "_inductor_test", "_native",
    "_quantized", "_test", "_torch_testing", "ao", "aten", "bucketing", "c10d", "c10d_functional", "cuda",
    "debug_mode_ops", "debugprims", "device_mesh", "export", "flex_lib", "fsdp", "higher_order", "inductor",
    "inductor_prims", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "prim", "prims",
    "profiler", "quantization", "quantized", "quantized_decomposed", "rngprims", "semi_structured", "sparse",
    "static_runtime", "streams", "symm_mem", "torch_attn", "triton", "xpu",
)  # fmt: skip


class Observer:
    """The one observer of a process. Calls are noted while it has folders to write to and is not paused."""

    def __init__(self) -> None:
        self._sinks: dict[str, Any] = {}  # by folder
        self._paused = 0
        self._waits = False  # True once the import of torch is waited for

    def start(self, folder: str, keeps_values: bool) -> None:
        """Write notes into a folder from now on."""
        from gradverify_observer.sink import Sink

        self._sinks = {**self._sinks, folder: Sink(folder, keeps_values)}
        if not self._waits:
            self._waits = True
            call_when_imported(_FUNCTIONS, self._see_functions)
            call_when_imported(_OPERATORS, self._see_operators)
            call_when_imported(_COMPILER, _hide_from_compiler)

    def stop(self, folder: str) -> None:
        """Write no more notes into a folder."""
        left = dict(self._sinks)
        sink = left.pop(folder, None)
        self._sinks = left
        if sink is not None:
            sink.flush()

    def flush(self) -> None:
        """Write what was counted and not yet written."""
        for sink in list(self._sinks.values()):
            sink.flush()

    def pause(self) -> None:
        """Note nothing, in no thread, until `resume` was called as often."""
        self._paused += 1

    def resume(self) -> None:
        """Undo one `pause`."""
        self._paused -= 1

    def _note_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._sinks and not self._paused:
            from gradverify_observer.calls import note_function

            note_function(self._sinks, function, args, kwargs)

    def _note_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._sinks and not self._paused:
            from gradverify_observer.calls import note_operator

            note_operator(self._sinks, operator, args, kwargs)

    def _note_raised_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._sinks and not self._paused:
            from gradverify_observer.calls import note_raised_function

            note_raised_function(self._sinks, function, args, kwargs)

    def _note_raised_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._sinks and not self._paused:
            from gradverify_observer.calls import note_raised_operator

            note_raised_operator(self._sinks, operator, args, kwargs)

    def _see_functions(self) -> None:
        instrument(_FUNCTIONS, ("Function",), "apply", Note(self._note_function, self._note_raised_function))

    def _see_operators(self) -> None:
        own = frozenset(f"{home}.{namespace}" for home in ("torch._ops", "torch.ops") for namespace in _OF_TORCH)
        note = Note(self._note_operator, self._note_raised_operator, left_out=own)
        instrument(_OPERATORS, _OPERATOR_CLASSES, "__call__", note)


def _hide_from_compiler() -> None:
    """Let torch.compile run the functions of this package as they are, as it does with those of torch."""
    sys.modules[_COMPILER].add(__name__)


OBSERVER = Observer()  # one for the process, as is torch's class that it observes


def start_from_environment() -> None:
    """Start if the environment names folders."""
    for folder in filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)):
        OBSERVER.start(folder, os.environ.get(VALUES) == "1")


def environment(folder: str, keeps_values: bool) -> dict[str, str]:
    """Return the variables with which a new Python process starts to note its calls into a folder too."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != here]
    folders = [each for each in os.environ.get(FOLDERS, "").split(os.pathsep) if each]
    kept = {VALUES: "1"} if keeps_values else {}
    return {
        "PYTHONPATH": os.pathsep.join([here, *paths]),
        FOLDERS: os.pathsep.join([*folders, folder]),
        **kept,
    }
