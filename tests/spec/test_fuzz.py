"""Whatever is in a file, reading it gives specs or mistakes: never an exception, never both."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradverify.spec.expand import expand
from gradverify.spec.files import SpecFile, decode
from gradverify.spec.read import Reading, read_spec
from gradverify.spec.scalar import UnreadableScalarError, resolve

GOOD = """\
function: pkg.mod:F
inputs:
  x: {shape: [5], uniform: [-3, 3], avoid: [0, 2.0], layout: strided}
  y: [{shape: [2, 2], constraint: symmetric}, {values: [1, 2.5, 1+2j]}]
  z: {size: [2, n]}
  u: none
  w: &w {factory: pkg.mod:make, args: {a: 1}}
  v: {shape: [n, 2 * m], integers: [0, 4]}
dims: {n: 4, m: 6}
explore:
  sizes: {n: {from: 2, to: 300, multiple_of: 2}}
  ranges: {x: [-4, 4]}
  indices: {v: {below: n, special: [-100]}}
  choices: {u: [none, tanh]}
  require: len(v) == n and n > 0
  fixed: [w, m]
  budget: 100
checks: [gradcheck, gradgradcheck, contract]
dtypes: [float64]
devices: [cpu, cuda:0]
samples: 2
timeout: 60
rtol: 1e-7
gradcheck: {rtol: 1e-3}
expect: {gradcheck: fail, cause: missing-mask}
cases:
  vector: {}
  matrix: {inputs: {x: {shape: [3, 4]}, z: 0.5}}
---
function: pkg.mod:G
init: {width: 3}
inputs: {x: {shape: [2], integers: [0, 9]}}
"""

WORDS = st.sampled_from(
    sorted(
        set(GOOD.replace(":", " ").replace("[", " ").replace("]", " ").replace("{", " ").replace("}", " ").split())
        | {
            "values",
            "file",
            "bernoulli",
            "linspace",
            "normal",
            "permutation",
            "dtype",
            "tuple",
            "device",
            "outputs",
            "n + 1",
            "n // 0",
        }
    )
)
SCALARS = st.one_of(
    WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.dates(), st.binary(max_size=3)
)
STRUCTURES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | SCALARS, inner, max_size=4),
    max_leaves=20,
)
PIECES = st.sampled_from(
    [*"[]{}:,-?&*!|>%@`#'\"\n\t ~<=", "\n  ", ": ", "- ", "---\n", "*w", "<<: ", "\\x1b", ".inf", "é"]
)

fuzz = settings(max_examples=75, deadline=2000, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def read(text: str) -> Reading:
    reading = read_spec(text, SpecFile(path=Path("s.yaml"), location=Path("/nowhere/s.yaml"), name="s"))
    assert bool(reading.specs) != bool(reading.errors)
    assert all(str(error).isprintable() for error in reading.errors)
    cases = expand(reading.specs)
    assert len({case.id for case in cases}) == len(cases)
    return reading


def test_the_good_text_is_good() -> None:
    assert not read(GOOD).errors


@pytest.mark.slow
@fuzz
@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.lists(PIECES | WORDS, max_size=3).map("".join))
def test_mutated_text(at: int, removed: int, inserted: str) -> None:
    read(GOOD[:at] + inserted + GOOD[at + removed :])


@pytest.mark.slow
@fuzz
@given(st.data())
def test_mutated_values(data: st.DataObject) -> None:
    document = next(yaml.safe_load_all(GOOD))
    node, key = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(node[key], dict) and node[key] and data.draw(st.booleans()):
        node, key = node[key], data.draw(st.sampled_from(sorted(node[key])))
    node[key] = data.draw(STRUCTURES)
    read(yaml.safe_dump(document, allow_unicode=True))


@pytest.mark.slow
@fuzz
@given(STRUCTURES)
def test_structures(structure: object) -> None:
    read(yaml.safe_dump(structure))


@fuzz
@given(st.lists(PIECES | WORDS | st.text(max_size=4), max_size=30).map("".join))
def test_text(text: str) -> None:
    decoded = decode(text.encode("utf-8", errors="surrogatepass"), "s.yaml")
    if isinstance(decoded, str):
        read(decoded)


@fuzz
@given(
    st.binary(max_size=60) | st.binary(max_size=5).map(lambda noise: GOOD.encode()[:40] + noise + GOOD.encode()[40:])
)
def test_bytes(data: bytes) -> None:
    decoded = decode(data, "s.yaml")
    if isinstance(decoded, str):
        read(decoded)


@fuzz
@given(st.floats(allow_nan=False) | st.integers(-(2**63), 2**64 - 1))
def test_every_number_is_read_as_the_number_it_looks_like(number: float) -> None:
    text = f".{number}".replace(".-", "-.") if number in (float("inf"), -float("inf")) else repr(number)
    assert resolve(text) == number


@fuzz
@given(st.text("0123456789.eE+-_xo", max_size=12))
def test_what_looks_like_a_number_is_one_or_text(text: str) -> None:
    try:
        value = resolve(text)
    except UnreadableScalarError:
        return
    assert value == text or isinstance(value, int | float) or (text == "" and value is None)


@pytest.mark.parametrize(
    "word", ["no", "off", "on", "yes", "y", "n", "Off", "1:30", "1e", "0x", "1__0", "inf", "nan", "-", "+."]
)
def test_words_that_stay_words(word: str) -> None:
    assert resolve(word) == word
