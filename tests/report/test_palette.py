"""Styles of lines, and colour scales."""

import itertools

import numpy as np
import pytest

from stormpg.report.palette import COLOURS, DIVERGING, SEQUENTIAL, SUBJECT_WIDTH, WIDTH, styles, styles_of, subject


def test_no_two_lines_look_the_same():
    found = styles(f"method-{i}" for i in range(200))
    assert len({(one.colour, one.dash) for one in found.values()}) == 200
    first = list(found.values())[: len(COLOURS)]
    assert len({one.colour for one in first}) == len(COLOURS)
    assert all(a.dash != b.dash for a, b in itertools.pairwise(first))


@pytest.mark.parametrize(
    ("names", "chosen", "expected"),
    [
        (["gpomdp", "storm-pg"], None, "storm-pg"),
        (["gpomdp", "storm-pg #1", "storm-pg #0"], None, "storm-pg #1"),
        (["tuned", "default"], None, "tuned"),
        (["gpomdp", "storm-pg"], "gpomdp", "gpomdp"),
        (["gpomdp"], "not there", "gpomdp"),
    ],
)
def test_the_subject_is_the_heaviest(names, chosen, expected):
    found = styles(names, chosen)
    assert list(found) == names
    assert {name: one.width for name, one in found.items()} == {n: SUBJECT_WIDTH if n == expected else WIDTH for n in names}
    assert (found[expected].colour, found[expected].dash) == (COLOURS[0], ())


def test_a_report_without_lines_has_no_subject():
    assert subject([]) is None
    assert styles_of({}) == {}


def luminance(colour: str) -> float:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))


def test_a_scale_orders_values_also_for_those_who_see_no_colours():
    assert (np.diff([luminance(one) for one in SEQUENTIAL]) > 0).all()
    middle = len(DIVERGING) // 2
    assert (np.diff([luminance(one) for one in DIVERGING[: middle + 1]]) > 0).all()
    assert (np.diff([luminance(one) for one in DIVERGING[middle:]]) < 0).all()


def test_colours_can_be_told_apart_with_a_red_green_deficiency():
    """Simulated by Viénot, Brettel and Mollon (1999) for protanopia and deuteranopia, in linear RGB."""
    rgb = np.array([[int(one[i : i + 2], 16) / 255 for i in (1, 3, 5)] for one in COLOURS]) ** 2.2
    for matrix in (
        [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
        [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
    ):
        seen = np.clip(rgb @ np.transpose(matrix), 0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen, axis=-1)[np.triu_indices(len(seen), 1)]
        assert apart.min() > 0.14
