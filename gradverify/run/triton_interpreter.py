"""Run Triton kernels without a GPU, in Triton's interpreter, with the arithmetic that a GPU has.

The interpreter of Triton 3.7 differs from a GPU in ways that change numbers: a cast to bfloat16 drops bits instead of
rounding, arithmetic on bfloat16 works on the bits as if they were integers, and Python floats stay in float64. `set_up`
replaces these parts. It also lets `autotune` take its first configuration, and computes the functions of libdevice that
torch has. What is still missing raises NotOnThisMachine: the case is skipped, not judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from gradverify.errors import NotOnThisMachine
from gradverify.run.triton_bfloat16 import with_bfloat16

_VARIABLE = "TRITON_INTERPRET"
_DONE = "_gradverify_has_set_up"  # attribute of the interpreter's module
_OLDEST = (3, 7)  # the oldest version of Triton whose interpreter was compared with torch's arithmetic
_NOT_INSTALLED = "triton is not installed: pip install 'gradverify[triton]'"

# Functions of libdevice with another name in torch.
_TORCH_NAMES = {"fabs": "abs", "rint": "round", "fast_expf": "exp", "fast_logf": "log", "fast_sinf": "sin"}
_TORCH_NAMES |= {"fast_cosf": "cos", "fast_tanf": "tan", "fast_powf": "pow", "fast_dividef": "div"}
_SAME_NAMES = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf"),
    *("erfc", "erfinv", "exp", "exp2", "expm1", "floor", "hypot", "lgamma", "log", "log10", "log1p", "log2"),
    *("pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)


def why_not_interpreted() -> str | None:
    """Return why this machine cannot interpret Triton kernels, None if it can."""
    return None if find_spec("triton") is not None else _NOT_INSTALLED


def set_up() -> None:
    """Let kernels that are defined from now on be interpreted.

    Raises NotOnThisMachine if Triton is not installed or too old, or was imported before without its interpreter, or if
    the interpreter is not built as the one known here.
    """
    reason = why_not_interpreted()
    if reason is not None:
        raise NotOnThisMachine(reason)
    os.environ[_VARIABLE] = "1"
    _require_interpreter()
    interpreter = import_module("triton.runtime.interpreter")
    if not hasattr(interpreter, _DONE):
        _replace_parts(interpreter)
        setattr(interpreter, _DONE, True)


def _require_interpreter() -> None:
    version = import_module("triton").__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise NotOnThisMachine(f"triton {version} is too old to interpret kernels here: {oldest} or newer is needed")
    if type(import_module("triton.language.standard").sum).__name__ != "InterpretedFunction":
        raise NotOnThisMachine("triton was imported in this process before its interpreter was switched on")


def _replace_parts(interpreter: Any) -> None:
    try:
        with_bfloat16(interpreter)
        _round_floats(interpreter)
        _prepare_once(interpreter)
        _keep_dtypes(interpreter)
        _keep_block_types(interpreter.tl)
        _without_warnings(interpreter)
        _refuse_the_rest(interpreter)
        _without_benchmarks(import_module("triton.runtime.autotuner").Autotuner)
        for module in ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"):
            _with_libdevice(import_module(module), interpreter)
        _without_driver(import_module("triton.runtime.driver"))
    except (AttributeError, ImportError) as error:
        version = import_module("triton").__version__
        raise NotOnThisMachine(f"the interpreter of triton {version} is built in another way: {error}") from error


def _round_floats(interpreter: Any) -> None:
    """Pass Python floats to kernels as float32, as a launch on a GPU does."""
    convert, language = interpreter._implicit_cvt, import_module("triton.language")

    def converted(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        with np.errstate(over="ignore"):
            value = np.array([argument]).astype(np.float32)
        return language.tensor(interpreter.TensorHandle(value, language.float32), language.float32)

    interpreter._implicit_cvt = converted


def _prepare_once(interpreter: Any) -> None:
    """Prepare the language once for each module and launch.

    The interpreter does so at each call of a function by a kernel, as of tl.sum: half of all its time.
    """
    launch, prepare = interpreter.GridExecutor.__call__, interpreter._patch_lang
    prepared: set[int] = set()  # dictionaries of the modules whose functions were called in this launch

    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepared.clear()  # the end of a launch takes back what was prepared
        try:
            return launch(self, *args, **kwargs)
        finally:
            prepared.clear()

    def prepare_once(function: Any) -> Any:
        module = id(function.__globals__)
        if module in prepared:
            return None  # only a launch, which comes first, uses what is returned
        prepared.add(module)
        return prepare(function)

    interpreter.GridExecutor.__call__ = launched
    interpreter._patch_lang = prepare_once


def _keep_dtypes(interpreter: Any) -> None:
    """Look up the dtype of NumPy once for each dtype of Triton: the interpreter makes the whole table each time."""
    look_up = interpreter._get_np_dtype
    known: dict[str, Any] = {}

    def looked_up(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = look_up(dtype)
        return known[name]

    interpreter._get_np_dtype = looked_up


def _keep_block_types(language: Any) -> None:
    """Describe each type of a block once: every result has one, and its shape and name are made each time."""
    scalar, block, constant = language.dtype, language.block_type, language.constexpr
    describe = block.__init__
    known: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}

    def described(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(size.value if isinstance(size, constant) else size for size in shape)
        if type(element_ty) is not scalar or not all(type(size) is int for size in sizes):
            describe(self, element_ty, shape)  # of a pointer, or refused
            return
        key = element_ty.name, sizes
        if key not in known:
            describe(self, element_ty, shape)
            known[key] = dict(vars(self))
        vars(self).update(known[key], element_ty=element_ty)

    block.__init__ = described


def _without_warnings(interpreter: Any) -> None:
    """Let overflow and NaN pass silently, as on a GPU."""
    launch = interpreter.GridExecutor.__call__

    def silent(self: Any, *args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return launch(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = silent


def _refuse_the_rest(interpreter: Any) -> None:
    """Raise NotOnThisMachine for operations that the interpreter lacks, or computes in another way than a GPU."""
    builder = interpreter.InterpreterBuilder
    convert, atomic, bfloat16 = builder.create_fp_to_fp, builder.create_atomic_rmw, interpreter.tl.bfloat16

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if 8 in (source.dtype.scalar.primitive_bitwidth, target.scalar.primitive_bitwidth):
            raise NotOnThisMachine("the interpreter has no float8 conversion that rounds as a GPU does")
        return convert(self, source, target, rounding)

    def create_atomic_rmw(self: Any, operation: Any, pointer: Any, value: Any, *rest: Any) -> Any:
        if value.dtype.scalar == bfloat16:
            raise NotOnThisMachine("the interpreter has no atomic operations on bfloat16")
        return atomic(self, operation, pointer, value, *rest)

    builder.create_fp_to_fp = create_fp_to_fp
    builder.create_atomic_rmw = create_atomic_rmw
    builder.create_extern_elementwise = _refusal("extern_elementwise")
    builder.create_inline_asm = _refusal("inline assembly")


def _without_benchmarks(autotuner: Any) -> None:
    """Let autotune take the first configuration that its pruning leaves, without timing any."""
    run = autotuner.run

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        every = self.configs
        if len(every) > 1:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            self.configs = list(self.prune_configs(kwargs))[:1]
        try:
            return run(self, *args, **kwargs)
        finally:
            self.configs = every

    autotuner.run = run_first


def _without_driver(driver: Any) -> None:
    create = driver._create_driver

    def created() -> Any:
        try:
            return create()
        except RuntimeError as error:
            raise NotOnThisMachine(f"the interpreter has no GPU driver: {error}") from error

    driver._create_driver = created


def _with_libdevice(module: Any, interpreter: Any) -> None:
    for name, found in list(vars(module).items()):
        if callable(found) and not name.startswith("_") and getattr(found, "__module__", "") == module.__name__:
            torch_name = name if name in _SAME_NAMES else _TORCH_NAMES.get(name)
            given = _refusal(f"libdevice.{name}") if torch_name is None else _elementwise(torch_name, interpreter)
            setattr(module, name, given)


def _elementwise(name: str, interpreter: Any) -> Callable[..., Any]:
    """Return torch's function of this name on tensors of the interpreter."""
    function = getattr(torch, name)
    tensor = interpreter.tl.tensor

    def call(*args: Any, **_: Any) -> Any:
        blocks = [arg for arg in args if isinstance(arg, tensor)]
        model = max(blocks, key=lambda block: block.handle.data.ndim)
        values = [torch.from_numpy(np.array(arg.handle.data if arg in blocks else [arg])) for arg in args]
        result = function(*values).numpy().astype(model.handle.data.dtype)
        return tensor(interpreter.TensorHandle(result, model.handle.dtype), model.type)

    return call


def _refusal(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotOnThisMachine(f"the interpreter has no {what}")

    return refuse
