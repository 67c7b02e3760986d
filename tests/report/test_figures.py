"""Figures for print: what is drawn, as matplotlib has it."""

from pathlib import Path

import numpy as np
import pytest

from stormpg.report import charts, figures
from stormpg.report.palette import COLOURS, SUBJECT_WIDTH, styles

GRID = np.arange(20, 4001, 20)
NAMES = [*(f"method-{i}" for i in range(29)), "storm-pg"]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, instead of files."""
    kept = []
    for module in (charts, figures):
        monkeypatch.setattr(module, "save", lambda figure, files, dpi: kept.append(figure))
    return kept


def environment(names, log: bool):
    curves = {n: 100 * (1 - np.exp(-GRID / (100 + 20 * i))) for i, n in enumerate(names)}
    about = {"name": "cart", "title": "Cart", "ceiling": 100.0, "grid": GRID, "log": log}
    shapes = {n: {"statistic": "IQM", "seeds": 30, "estimate": y, "low": y - 5, "high": y + 5} for n, y in curves.items()}
    return {**about, "algorithms": {n: {"curves": {"all": shape, "paper": shape}} for n, shape in shapes.items()}}


@pytest.mark.parametrize(("names", "bands"), [(NAMES, 1), (NAMES[-4:], 4)])
def test_all_curves_are_drawn_and_the_subject_is_on_top(drawn, names, bands):
    """The figure dropped every curve after the seventh once."""
    labels = {"all": "(b) all", "paper": "(a) best"}
    figures.learning_curves(environment(names, True), ("paper", "all"), labels, styles(names), "", [Path("x.png")])
    (figure,) = drawn
    assert len(figure.axes) == 2
    for axes in figure.axes:
        lines = [line for line in axes.lines if line.get_label() in names]
        assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines}) == len(names)
        top = max(lines, key=lambda line: line.get_zorder())
        assert (top.get_label(), top.get_linewidth(), top.get_color()) == ("storm-pg", SUBJECT_WIDTH, COLOURS[0])
        assert len(axes.collections) == bands
        assert axes.get_xscale() == "log"
        assert axes.get_xlim() == (20, 4000)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["storm-pg", *names[:-1]]


def test_a_linear_axis_begins_at_zero(drawn):
    figures.learning_curves(environment(NAMES[:2], False), ("all",), {"all": ""}, styles(NAMES[:2]), "", [])
    assert drawn[0].axes[0].get_xscale() == "linear"
    assert drawn[0].axes[0].get_xlim()[0] == 0


def test_maps_of_one_kind_share_a_scale_with_one_bar_and_a_key(drawn):
    one = {"section": "Pays", "label": "ratio", "x_name": "horizon", "x": [1, 2], "y_name": "noise", "y": [0]}
    signs = {"star": "1 is outside", "cross": "not reached"}
    maps = [
        {**one, "title": "a", "final": [[0.5, None]], "marked": [[True, False]], **signs},
        {**one, "title": "b", "final": [[4.0, 1.0]], "marked": [[False, False]], **signs},
    ]
    charts.draw_charts(maps, [])
    (figure,) = drawn
    first, second, bar = figure.axes
    norms = [axes.images[0].norm for axes in (first, second)]
    assert [(norm.vmin, norm.vmax) for norm in norms] == [(0.25, 4.0)] * 2
    assert bar.get_ylabel() == "ratio"
    assert [text.get_text() for text in first.texts] == ["0.5*", "×"]
    assert figure.get_supxlabel() == "*  1 is outside     ×  not reached"


def test_series_of_a_chart_look_as_on_the_page(drawn):
    """The same styles as in the other charts of a report, in which the subject is another one."""
    series = [{"name": name, "x": [1, 2], "estimate": [1.0, 2.0], "low": [0.5, 1.0], "high": [2.0, 3.0]} for name in "ab"]
    charts.draw_charts([charts.line_chart("s", "t", "x", "y", "xy", series)], [], styles(["b", "a"]))
    found = {line.get_label(): line.get_linewidth() for line in drawn[0].axes[0].lines}
    assert found["b"] == SUBJECT_WIDTH > found["a"]
