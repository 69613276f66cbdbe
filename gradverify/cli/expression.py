"""The language of `-k`: substrings of a case's id with and, or, not and parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradverify.errors import GradverifyError

Matcher = Callable[[str], bool]
_TOKEN = re.compile(r"""\s*(?:(?P<sign>[()])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s()"']+))""")
_WORDS = frozenset({"and", "or", "not"})
_MAX_DEPTH = 100


class ExpressionError(GradverifyError):
    """The text of `-k` is not an expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A sign, an operator or a substring."""

    text: str
    column: int  # from 1
    operator: bool  # a sign or an unquoted and, or, not


def matcher(text: str) -> Matcher:
    """Return the predicate on ids that `text` expresses, ignoring case. Raises ExpressionError."""
    tokens = _tokens(text)
    found, rest = _disjunction(tokens, text, 0)
    if rest:
        raise _error(text, rest[0].column, f"`{rest[0].text}` is not expected here")
    return found


def _tokens(text: str) -> Sequence[Token]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            column = place + len(text[place:]) - len(text[place:].lstrip()) + 1
            raise _error(text, column, "a quote is not closed")
        kind = str(match.lastgroup)
        word = match.group(kind)
        operator = kind == "sign" or (kind == "word" and word in _WORDS)
        tokens.append(Token(text=word, column=match.start(kind) + 1, operator=operator))
        place = match.end()
    return tokens


def _disjunction(tokens: Sequence[Token], text: str, depth: int) -> tuple[Matcher, Sequence[Token]]:
    parts, tokens = _chain(tokens, text, depth, "or", _conjunction)
    return (lambda name: any(part(name) for part in parts)), tokens


def _conjunction(tokens: Sequence[Token], text: str, depth: int) -> tuple[Matcher, Sequence[Token]]:
    parts, tokens = _chain(tokens, text, depth, "and", _operand)
    return (lambda name: all(part(name) for part in parts)), tokens


_Parser = Callable[[Sequence[Token], str, int], tuple[Matcher, Sequence[Token]]]


def _chain(
    tokens: Sequence[Token], text: str, depth: int, word: str, parse: _Parser
) -> tuple[list[Matcher], Sequence[Token]]:
    part, tokens = parse(tokens, text, depth)
    parts = [part]
    while tokens and _is_operator(tokens[0], word):
        part, tokens = parse(tokens[1:], text, depth)
        parts.append(part)
    return parts, tokens


def _operand(tokens: Sequence[Token], text: str, depth: int) -> tuple[Matcher, Sequence[Token]]:
    if not tokens:
        raise _error(text, len(text.rstrip()) + 1, "a name is missing at the end")
    first, rest = tokens[0], tokens[1:]
    if depth > _MAX_DEPTH:
        raise _error(text, first.column, "nested too deeply")
    if _is_operator(first, "not"):
        inner, rest = _operand(rest, text, depth + 1)
        return (lambda name: not inner(name)), rest
    if _is_operator(first, "("):
        inner, rest = _disjunction(rest, text, depth + 1)
        if not rest or not _is_operator(rest[0], ")"):
            raise _error(text, first.column, "this parenthesis is not closed")
        return inner, rest[1:]
    if first.operator:
        raise _error(text, first.column, f"a name is missing before `{first.text}`")
    wanted = first.text.casefold()
    return (lambda name: wanted in name.casefold()), rest


def _is_operator(token: Token, text: str) -> bool:
    return token.operator and token.text == text


def _error(text: str, column: int, problem: str) -> ExpressionError:
    return ExpressionError(f"-k {text!r}: column {column}: {problem} (substrings with and, or, not, parentheses)")
