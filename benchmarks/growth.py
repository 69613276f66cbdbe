"""SVG plot of time against size on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 60
_OURS, _THEIRS = "#0072b2", "#d55e00"  # distinguishable with colour blindness


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Seconds for one size; `theirs` is None if torch's check was not run."""

    size: int
    ours: float
    theirs: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    low: int  # powers of ten
    high: int
    start: float  # pixels
    stop: float

    def place(self, value: float) -> float:
        share = (math.log10(value) - self.low) / max(1, self.high - self.low)
        return self.start + share * (self.stop - self.start)


def plot(points: Sequence[Point]) -> str:
    """Return the plot as SVG; needs at least one point."""
    theirs = [(point.size, point.theirs) for point in points if point.theirs is not None]
    ours = [(point.size, point.ours) for point in points]
    times = [seconds for _, seconds in (*ours, *theirs)]
    across = _axis([size for size, _ in ours], _MARGIN, _WIDTH - _MARGIN)
    up = _axis(times, _HEIGHT - _MARGIN, _MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        ' font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_grid(across, up),
        *_line(ours, across, up, _OURS, "gradverify"),
        *(_line(theirs, across, up, _THEIRS, "gradcheck") if theirs else ()),
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 14}" text-anchor="middle">elements of an elementwise function</text>',
        f'<text x="16" y="{_HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {_HEIGHT / 2})">time</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axis(values: Sequence[float], start: float, stop: float) -> _Axis:
    logs = [math.log10(value) for value in values]
    return _Axis(low=math.floor(min(logs)), high=math.ceil(max(logs)), start=start, stop=stop)


def _grid(across: _Axis, up: _Axis) -> list[str]:
    found = []
    for power in range(across.low, across.high + 1):
        x = across.place(10.0**power)
        found.append(f'<path d="M{x:.1f} {up.start} V{up.stop}" stroke="#dddddd"/>')
        found.append(f'<text x="{x:.1f}" y="{up.start + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(up.low, up.high + 1):
        y = up.place(10.0**power)
        found.append(f'<path d="M{across.start} {y:.1f} H{across.stop}" stroke="#dddddd"/>')
        found.append(f'<text x="{across.start - 6}" y="{y + 4:.1f}" text-anchor="end">{_seconds(power)}</text>')
    return found


def _seconds(power: int) -> str:
    return (
        f"{10**power:,} s" if power >= 0 else f"{10 ** (power + 3):,} ms" if power >= -3 else f"{10 ** (power + 6)} µs"
    )


def _line(points: Sequence[tuple[int, float]], across: _Axis, up: _Axis, colour: str, name: str) -> list[str]:
    places = [(across.place(size), up.place(seconds)) for size, seconds in points]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    last_x, last_y = places[-1]
    return [
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places),
        f'<text x="{last_x:.1f}" y="{last_y - 10:.1f}" fill="{colour}" text-anchor="end">{name}</text>',
    ]
