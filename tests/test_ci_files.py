"""The action, the hooks and the examples in docs/ci.md name only what there is."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from gradverify.cli.app import app

ROOT = Path(__file__).parent.parent
ACTION: Any = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS: Any = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS: Any = typer.main.get_command(app)
_COMMAND = re.compile(r"\bgradverify (?:[a-z]+)\b[^\n`|&]*")


def known_options(command: str) -> set[str]:
    return {name for parameter in COMMANDS.commands[command].params for name in parameter.opts} | {"-h", "--help"}


def check_command(text: str) -> None:
    words = shlex.split(text, comments=True)
    assert words[1] in COMMANDS.commands, text
    own = words[2 : words.index("--")] if "--" in words else words[2:]  # what follows is another command
    named = {word.partition("=")[0] for word in own if re.fullmatch(r"--?[a-z].*", word)}
    assert named <= known_options(words[1]), text


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(entry)


def steps_of(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from (step for step in value.get("steps", ()))
        for entry in value.values():
            yield from steps_of(entry)


EXAMPLES: list[Any] = [yaml.safe_load(text) for text in blocks(ROOT / "docs" / "ci.md", "yaml")]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_name_options_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"`(gradverify [^`\n]+)`", text)
    shown += [match.strip() for match in re.findall(r"(?m)^(?:\s*- (?:run: )?|    |\$ )(gradverify .*)$", text)]
    assert shown or page.name not in ("README.md", "ci.md")
    for command in shown:
        check_command(command)


def test_steps_of_the_examples_use_the_action_as_it_is() -> None:
    steps = [step for example in EXAMPLES for step in steps_of(example)]
    ours = [step for step in steps if step.get("uses", "").startswith("OWNER/gradverify@")]
    assert len(ours) == 3
    for step in ours:
        assert set(step["with"]) <= set(ACTION["inputs"])
        check_command(f"gradverify run {step['with'].get('args', '')}")
    used = set(re.findall(r"steps\.gradverify\.outputs\.([a-z-]+)", " ".join(map(str, steps))))
    assert used == {"report"}
    assert used <= set(ACTION["outputs"])


def test_the_inputs_of_the_action_are_all_explained() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", page) == list(ACTION["inputs"])
    assert all(f"`{name}`" in page for name in ACTION["outputs"])


def test_hooks_run_commands_that_exist() -> None:
    assert [hook["id"] for hook in HOOKS] == ["gradverify-changed", "gradverify", "gradverify-specs"]
    for hook in HOOKS:
        check_command(hook["entry"])
    (example,) = [example for example in EXAMPLES if "repos" in example]
    for used in example["repos"][0]["hooks"]:
        (hook,) = [hook for hook in HOOKS if hook["id"] == used["id"]]
        check_command(shlex.join([*shlex.split(hook["entry"]), *used.get("args", [])]))


def test_a_release_is_what_passed_all_of_ci() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    assert commands[0] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    targets = re.findall(r"(?m)^make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert targets == ["run", "types", "site", "release-check", "check"]
    known = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(targets) <= set(known)


def test_no_input_is_pasted_into_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        for expression in re.findall(r"inputs\.([a-z-]+)", " ".join(strings(step))):
            assert expression in ACTION["inputs"]


def run_step(folder: Path, **inputs: str) -> tuple[int, dict[str, str], list[str]]:
    """Run the action's last step with a `gradverify` that notes its arguments; return code, outputs, arguments."""
    script = ACTION["runs"]["steps"][-1]["run"]
    fake = folder / "bin" / "gradverify"
    fake.parent.mkdir()
    lines = ["#!/bin/sh", 'printf "%s\\n" "$@" > args', "for file; do :; done"]
    lines += ['[ "$CODE" = 2 ] || echo {} > "$file"', "exit $CODE"]
    fake.write_text("\n".join(lines), encoding="utf-8")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    (folder / "bin" / "python").symlink_to(sys.executable)
    output = folder / "output"
    output.touch()
    env = {"PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}", "RUNNER_TEMP": str(folder)}
    env |= {"GITHUB_OUTPUT": str(output), "PATHS": "", "ARGS": "", "SHARD": "", "CODE": "0", **inputs}
    ran = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    told = dict(row.split("=", 1) for row in output.read_text(encoding="utf-8").splitlines())
    assert ran.stderr == ""
    words = (folder / "args").read_text(encoding="utf-8").splitlines()
    check_command(shlex.join(["gradverify", *words]))
    return ran.returncode, told, words


def test_the_step_runs_all_there_is_by_default(tmp_path: Path) -> None:
    report = str(tmp_path / "gradverify.json")
    assert run_step(tmp_path) == (0, {"report": report, "exit-code": "0"}, ["run", "--json", report])


def test_the_step_splits_words_as_a_shell_does_and_expands_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").touch()
    code, _, words = run_step(
        tmp_path, PATHS="'my specs' b/*.yaml *", ARGS="-k 'a and $(touch owned) `id`' -q", SHARD="2/4", CODE="1"
    )
    report = str(tmp_path / "gradverify-2-of-4.json")
    expected = ["run", "my specs", "b/*.yaml", "*", "-k", "a and $(touch owned) `id`", "-q"]
    assert (code, words) == (1, [*expected, "--shard", "2/4", "--json", report])
    assert not (tmp_path / "owned").exists()


def test_the_step_names_no_report_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "gradverify.json").write_text("of an earlier step", encoding="utf-8")
    code, told, _ = run_step(tmp_path, CODE="2")
    assert (code, told) == (2, {"exit-code": "2"})
