"""The table of the built-in tasks."""

import numpy as np
import pytest

from stormpg.bench import built_in


def test_figures_of_a_curve():
    """A curve that rises from 0 to 15 in sixteen steps: the points at eighths are its odd values."""
    returns = np.tile(np.arange(16.0), (2, 1)) + np.array([[0.0], [1.0]])
    end, about = built_in.figures(returns)
    assert end == [14.5, 15.5]
    assert about == {
        "mean of all": pytest.approx(8.0),
        "mean at eighths": pytest.approx(8.5),
        "at 1/8": 1.5,
        "at 2/8": 3.5,
        "worst end": 14.5,
    }


@pytest.mark.slow
def test_a_small_table():
    made = built_in.built_in(lambda what: None, {"lqr": 48}, seeds=2)
    (row,) = made.rows
    assert row.name == "lqr, 48"
    assert len(row.values) == 2
    assert all(-1000 < value < 0 for value in row.values)
