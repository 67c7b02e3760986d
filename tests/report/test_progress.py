"""What progress bars show: the budget that is used up first, in the terminal and in a notebook."""

import sys
import types

import pytest

from stormpg.engine.budget import LIMIT
from stormpg.report import notebook
from stormpg.report.progress import shown
from stormpg.runs.result import Progress


def progress(trajectories=0, budget=LIMIT, steps=0, step_budget=None, runs=1, diverged=0) -> Progress:
    return Progress(trajectories, budget, 12.34, diverged, 1.0, steps, step_budget, lambda: None, runs)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (progress(30, 100), (30, 100, "trajectories")),
        (progress(30, LIMIT, 500, 2000), (500, 2000, "steps")),
        (progress(90, 100, 500, 2000), (90, 100, "trajectories")),
        (progress(10, 100, 1900, 2000), (1900, 2000, "steps")),
        (progress(10, LIMIT, 4000, 2000, runs=4), (1000, 2000, "steps")),
        (progress(10, LIMIT, 2100, 2000), (2000, 2000, "steps")),  # the last batch is not cut
    ],
)
def test_the_budget_that_is_used_up_first(now, expected):
    assert shown(now)[:3] == expected


def test_the_return_and_the_seeds_that_diverged():
    assert shown(progress(1, 2)).words == "return 12.3"
    assert shown(progress(1, 2, diverged=3)).words == "return 12.3  3 diverged"


def test_this_is_not_a_notebook():
    assert not notebook.in_notebook()


def test_a_bar_in_a_notebook(monkeypatch):
    """It is shown at once, replaces itself, and ends with the last state. Its label is no HTML."""
    states = []
    handle = types.SimpleNamespace(update=states.append)
    shows = types.SimpleNamespace(display=lambda state, display_id: states.append(state) or handle)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    with notebook.progress_bar("<b>\x1b evil") as show:
        for done in range(0, 101, 10):
            show(progress(done, 100))
    first, last = states[0], states[-1]
    assert len(states) < 5, "it is not updated more often than one can see"
    assert repr(first).endswith("evil: compiling")
    assert "100 of 100 trajectories  return 12.3" in repr(last)
    assert "width:100.0%" in last._repr_html_()
    assert "<b>" not in last._repr_html_()
    assert "\x1b" not in repr(last)
