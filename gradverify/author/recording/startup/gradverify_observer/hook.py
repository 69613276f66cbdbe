"""Wait for a module to be imported, and let a method report its calls without a frame of its own on the stack."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # see __init__
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable
    from types import CodeType, ModuleType
    from typing import Any

_NOTE = "_gradverify_note_"  # followed by the name of the method: a global of torch's module


def call_when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the module is there: now, or right after its import."""
    if name in sys.modules:
        _tolerantly(then)
    else:
        sys.meta_path.insert(0, _Finder(name, then))


def instrument(module: str, owners: tuple[str, ...], method: str, note: Note) -> None:
    """Let a method of some classes call `note(cls or self, args, kwargs)` first, and `note.raised` if it raises.

    Its code is replaced by the same code with one call more, at the same lines: tracebacks, warnings and whoever looks
    at the stack see no difference, and bound methods that were taken before report too.
    """
    home = sys.modules[module]
    name = _NOTE + method
    is_there = hasattr(home, name)
    setattr(home, name, note)
    if is_there:
        return
    tree = _parsed(home)
    for owner in owners:
        function = getattr(getattr(home, owner), method)
        function = getattr(function, "__func__", function)
        code = _code_with_note(home, tree, owner, method, name)
        if code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code


def _parsed(home: ModuleType) -> ast.Module:
    import ast
    from pathlib import Path

    path = home.__file__ or ""
    return ast.parse(Path(path).read_bytes(), path)


def _code_with_note(home: ModuleType, tree: ast.Module, owner: str, method: str, name: str) -> CodeType:
    import ast

    cls = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    found = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == method)
    start = 0 if ast.get_docstring(found) is None else 1
    found.body[start:] = _with_note(found, found.body[start:], name)
    factory = ast.parse("def factory(__class__): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [found]
    module = ast.Module(body=[factory], type_ignores=[])
    compiled = compile(module, home.__file__ or "", "exec", dont_inherit=True)
    code = _inner(_inner(compiled, "factory"), method)
    return code.replace(co_qualname=f"{owner}.{method}") if hasattr(code, "co_qualname") else code


def _with_note(method: ast.FunctionDef, body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the statements of a method with calls of `name`, all of them at the line of its last statement."""
    import ast

    first = [*method.args.posonlyargs, *method.args.args][0].arg
    spread, keywords = method.args.vararg, method.args.kwarg
    given = f"{first}, {spread.arg if spread else '()'}, {keywords.arg if keywords else '{}'}"
    # a bare `raise` leaves no trace in a traceback
    text = f"""
if {first}.__module__ not in {name}.left_out:
    {name}({given})
try:
    pass
except BaseException:
    {name}.raised({given})
    raise
"""
    statements = ast.parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            ast.copy_location(node, body[-1])
    guarded = statements[1]
    assert isinstance(guarded, ast.Try)
    guarded.body = body
    return statements


def _inner(code: CodeType, name: str) -> CodeType:
    found: CodeType = next(each for each in code.co_consts if getattr(each, "co_name", None) == name)
    return found


def _tolerantly(then: Callable[[], None]) -> None:
    try:  # noqa: SIM105 - contextlib takes milliseconds to import
        then()
    except Exception:
        pass  # the command goes on unobserved


class Note:
    """Two functions that take a class or object, args and kwargs: for a call that begins, and for one that raised.

    Subjects whose `__module__` is in `left_out` are not reported; to skip them costs the method next to nothing.
    """

    def __init__(
        self, begun: Callable[..., None], raised: Callable[..., None], left_out: frozenset[str] = frozenset()
    ) -> None:
        self._begun = begun
        self._raised = raised
        self.left_out = left_out

    def __call__(self, subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call that begins."""
        self._begun(subject, args, kwargs)

    def raised(self, subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note that a call raised."""
        if subject.__module__ not in self.left_out:
            self._raised(subject, args, kwargs)


class _Finder:
    """Finds one module as Python does, with a loader that reports the end of its import."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of the module that is waited for, None for others."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader, self._then)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """A loader that calls a function when its module was executed."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        """Return the module that Python's own loader creates."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Execute the module as if its own loader did."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _tolerantly(self._then)
