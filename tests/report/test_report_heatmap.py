"""The picture shows every saved element somewhere, whatever the ranges are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_specimens import element, finding

from gradverify.report.grid import flattened, grid_of, index_at, unflattened
from gradverify.report.heatmap import heatmap
from gradverify.report.lines import cells, plain
from gradverify.report.screen import Screen

indices = st.tuples(st.integers(0, 10**6), st.integers(0, 50))


@given(st.lists(st.tuples(indices, indices), min_size=1, max_size=40), st.integers(1, 30), st.integers(1, 60))
def test_every_element_has_a_cell_and_the_worst_wins(places: list[tuple], rows: int, columns: int) -> None:
    elements = [element(0, output_index=out, input_index=into, error=float(n)) for n, (out, into) in enumerate(places)]
    grid = grid_of(elements, rows, columns)
    assert 1 <= grid.rows.cells <= rows
    assert 1 <= grid.columns.cells <= columns
    assert elements[-1] in grid.worst.values()
    assert all(row < grid.rows.cells and column < grid.columns.cells for row, column in grid.worst)


@given(st.lists(st.integers(1, 9), min_size=0, max_size=4), st.data())
def test_flattening_is_undone(extents: list[int], data: st.DataObject) -> None:
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in extents)
    assert unflattened(flattened(index, extents), extents) == index


def test_the_first_cell_is_the_first_element() -> None:
    grid = grid_of([element(7), element(9)], 10, 10)
    assert (index_at(grid.rows, 0), index_at(grid.rows, 2), index_at(grid.rows, 99)) == ((7,), (9,), (9,))


def test_scalars_and_numbers_that_are_none() -> None:
    odd = element(0, output_index=(), input_index=(), analytic=math.nan, numeric=-math.inf, error=math.nan)
    rows = [plain(row) for row in heatmap(finding(elements=(odd,), total=1), Screen(width=80))]
    assert rows[1].split() == ["y", "!!", "!!", "!!"]


def test_nothing_without_elements() -> None:
    assert heatmap(finding(elements=(), total=0), Screen()) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80, 140])
def test_twenty_thousand_elements_fit(width: int) -> None:
    many = tuple(element(n, output_index=(n // 200, n % 200), input_index=(n,)) for n in range(20_000))
    rows = heatmap(finding(elements=many, total=30_000), Screen(width=width))
    assert max(cells(plain(row)) for row in rows) <= width
    assert "showing 20,000 of 30,000" in " ".join(plain(row) for row in rows)
