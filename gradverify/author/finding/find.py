"""Find every function with a gradient written by hand: modules are imported in workers, or read where that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from gradverify.author.finding.model import Finding, Found, Imported, Module, target_in
from gradverify.author.finding.operators import operators_of
from gradverify.author.finding.places import modules_of
from gradverify.author.finding.reading import Text, function_classes, read_module, relevant, written_functions
from gradverify.case import Absence, TargetProblem
from gradverify.result import without_output
from gradverify.run.interrupts import Waiting
from gradverify.run.no_answer import lost_message
from gradverify.run.task import Engine, FunctionCall, FunctionResult, Task, TaskDone, TaskLost

_IMPORT = "gradverify.author.finding.importing:import_module"
_TIMEOUT = 120.0  # seconds for one module, which may compile something
OnModule = Callable[[int, int], None]  # with the number of modules that are done, and of all


def find(
    places: Sequence[str], engine: Engine, waiting: Waiting = nullcontext, on_module: OnModule = lambda _, __: None
) -> Finding:
    """Return the functions of packages, modules, files and folders; raises NoSuchPackage.

    A module whose import raises, hangs or crashes is read instead, and its functions say why.
    """
    modules = modules_of(places)
    texts = {module.path: read_module(module.path) for module in modules}
    wanted = relevant(texts)
    asked = [module for module in modules if module.path in wanted]
    imported, unread = _import_all(asked, engine, waiting, on_module)
    bases = function_classes(texts.values())
    functions: list[Found] = []
    for module in asked:
        if module.path in imported:
            functions += _imported(module, texts[module.path], bases, imported[module.path])
        else:
            functions += _read(module, texts[module.path], bases, unread[module.path])
    functions += operators_of(asked, texts, imported)
    order = {module.path: number for number, module in enumerate(asked)}
    return Finding(
        functions=tuple(sorted(functions, key=lambda found: (order[found.module.path], found.line))),
        modules=len(modules),
        unread=tuple((module, unread[module.path]) for module in asked if module.path in unread),
        unparsed=tuple(module for module in asked if module.path in unread and texts[module.path].tree is None),
        local=tuple((each, number) for each in asked if (number := _local(texts[each.path], bases, functions, each))),
        seconds=tuple((path, each.seconds) for path, each in imported.items()),
    )


def _import_all(
    modules: Sequence[Module], engine: Engine, waiting: Waiting, on_module: OnModule
) -> tuple[Mapping[str, Imported], Mapping[str, str]]:
    """Return what was imported, and why the rest was not, by the path of the module."""
    for module in modules:
        call = FunctionCall(function=_IMPORT, argument=module)
        engine.submit(Task(key=module.path, work=call, timeout=_TIMEOUT))
    named = {module.path: module for module in modules}
    imported: dict[str, Imported] = {}
    unread: dict[str, str] = {}
    on_module(0, len(modules))
    while (event := engine.next_event(waiting)) is not None:
        if isinstance(event, TaskLost):
            unread[event.key] = f"importing {named[event.key].shown} {without_output(lost_message(event, _TIMEOUT))}"
        elif isinstance(event, TaskDone) and isinstance(event.answer, TargetProblem):
            unread[event.key] = _why(event.answer, named[event.key])
        elif isinstance(event, TaskDone) and isinstance(event.answer, FunctionResult):
            answer = event.answer.value
            if isinstance(answer, Imported):
                imported[event.key] = answer
            else:
                unread[event.key] = _why(answer, named[event.key])
        on_module(len(imported) + len(unread), len(modules))
    return imported, unread


def _why(problem: TargetProblem, module: Module) -> str:
    lacking = problem.absence is Absence.UNAVAILABLE
    return f"importing {module.shown} says: {problem.message}" if lacking else problem.message


def _imported(module: Module, text: Text, bases: frozenset[str], found: Imported) -> list[Found]:
    """Return the functions of a module that was imported, with their parameters if its text has them too."""
    parameters = {each.name: each.parameters for each in written_functions(text, bases)}
    return [
        Found(target=target_in(module, name), module=module, line=line, parameters=parameters.get(name))
        for name, line in found.functions
    ]


def _local(text: Text, bases: frozenset[str], functions: Sequence[Found], module: Module) -> int:
    """Return the number of Functions that a module defines inside functions and has no name for."""
    lines = [found.line for found in functions if found.module == module]
    return sum(
        each.is_class and each.is_local and not any(each.line <= line <= each.end for line in lines)
        for each in written_functions(text, bases)
    )


def _read(module: Module, text: Text, bases: frozenset[str], why: str) -> list[Found]:
    """Return the functions of a module that was not imported; none of those that are inside other functions."""
    return [
        Found(
            target=target_in(module, each.name),
            module=module,
            line=each.line,
            unread=why,
            parameters=each.parameters,
        )
        for each in written_functions(text, bases)
        if not each.is_local
    ]
