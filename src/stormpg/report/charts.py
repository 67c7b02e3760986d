"""Charts of a report for print: lines with intervals, bars, or a grid of numbers. The page draws the same data (page.js)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpg.errors import InputError
from stormpg.report.escaping import for_matplotlib
from stormpg.report.figures import save
from stormpg.report.palette import COLOURS, styles, width

COLUMNS = 3
MOST = 60  # maximum number of panels of a figure, and of rows or columns of a grid


def line_chart(
    section: str, title: str, x_name: str, y_name: str, log: str, series: Sequence[Any], note: str = "", **more: Any
) -> dict[str, Any]:
    """The data of a line chart, for the page and for figures. `log`: the logarithmic axes, such as "x" or "xy"."""
    names = {"x_name": x_name, "y_name": y_name}
    return {"section": section, "title": title, **names, "log": log, "series": list(series), "note": note, "wide": True, **more}


def draw_charts(charts: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> None:
    """Draw all charts of a section as the panels of one figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cells = max((len(chart["x"]) for chart in charts if "final" in chart), default=0)
    if max(cells, max((len(chart["y"]) for chart in charts if "final" in chart), default=0), len(charts)) > MOST:
        raise InputError(
            f"a figure of {len(charts)} panels with {cells} columns is too large; expected at most {MOST} of each."
        )
    columns = min(len(charts), 1 if cells > 8 else COLUMNS)
    rows = -(-len(charts) // columns)
    tallest = max((len(chart["y"]) for chart in charts if "final" in chart), default=0)
    size = (max(4.4, 0.8 * cells), max(3.2, 0.28 * tallest)) if cells else (6.0, 5.0)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, chart in zip(panels, charts, strict=False):
        draw = grid if "final" in chart else bars if "bars" in chart else lines
        draw(axes, chart)
        axes.set_title(for_matplotlib(chart["title"]), loc="left", fontsize=10)
    for axes in panels[len(charts) :]:
        axes.axis("off")
    figure.suptitle(for_matplotlib(charts[0]["section"]), x=0.01, ha="left", fontsize=13, fontweight="bold")
    save(figure, files, 160)


def lines(axes: Any, chart: Mapping[str, Any]) -> None:
    """Draw a line and a band for each series."""
    for series, (colour, dash) in zip(chart["series"], styles(len(chart["series"])), strict=True):
        x, y = numbers(series["x"]), numbers(series["estimate"])
        marker = "o" if len(x) < 20 else None
        if series.get("points"):
            marker, dash = "o", "none"
        look = {"linestyle": dash, "color": colour, "linewidth": width(series["name"]), "marker": marker, "markersize": 4}
        axes.plot(x, y, label=for_matplotlib(series["name"]), **look)
        if "low" in series:
            axes.fill_between(x, numbers(series["low"]), numbers(series["high"]), color=colour, alpha=0.16, linewidth=0)
    if chart.get("level") is not None:
        axes.axhline(chart["level"], color="0.5", linewidth=1, linestyle=":")
    axes.set(
        xlabel=for_matplotlib(chart["x_name"]),
        ylabel=for_matplotlib(chart["y_name"]),
        xscale="log" if "x" in chart["log"] else "linear",
        yscale="log" if "y" in chart["log"] else "linear",
    )
    for axis, own in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        few_ticks(axis, own in chart["log"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False)


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """Values as floats, with NaN instead of None."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def bars(axes: Any, chart: Mapping[str, Any]) -> None:
    """Draw a bar for each name, with the first at the top."""
    axes.barh([for_matplotlib(name) for name in chart["names"][::-1]], chart["bars"][::-1], color=COLOURS[0])
    axes.set(xlabel=for_matplotlib(chart["x_name"]))
    axes.spines[["top", "right"]].set_visible(False)


def few_ticks(axis: Any, logarithmic: bool) -> None:
    """Set the ticks of a logarithmic axis: 1, 2 and 5 of each decade if there are few decades, otherwise the decades only."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if logarithmic:
        low, high = axis.get_view_interval()
        few = low > 0 and high / low < 1000
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
        if few:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def grid(axes: Any, chart: Mapping[str, Any]) -> None:
    """Draw a grid of cells, each with its number. A ratio of 1 is the middle of the colour map, unless there is a `range`."""
    from matplotlib.colors import LogNorm, Normalize

    z = np.array([[np.nan if v is None else v for v in row] for row in chart["final"]], dtype=float)
    colours: str
    norm: Any
    if "range" in chart:
        colours, norm, digits = "cividis", Normalize(*chart["range"]), ".2f"
        dark = np.clip(norm(z), 0, 1) < 0.45
    else:
        known = z[np.isfinite(z) & (z > 0)]
        spread = max(2.0, *(np.maximum(known, 1 / known) if known.size else (2.0,)))
        colours, norm, digits = "PuOr", LogNorm(1 / spread, spread), ".2g"
        dark = np.abs(np.log(np.maximum(z, 1e-300))) > 0.6 * np.log(spread)
    axes.imshow(z, cmap=colours, norm=norm, origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(z):
        text = f"{value:{digits}}".replace("-0.00", "0.00") if np.isfinite(value) else "×"
        text += "*" if "marked" in chart and chart["marked"][row][column] else ""
        ink = "white" if np.isfinite(value) and dark[row, column] else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color=ink)
    for labels, place, turned in ((chart["x"], axes.set_xticks, True), (chart["y"], axes.set_yticks, False)):
        named = any(isinstance(label, str) for label in labels)
        shown = [for_matplotlib(label) if isinstance(label, str) else f"{label:.2g}" for label in labels]
        place(range(len(labels)), shown, fontsize=8, **({"rotation": 30, "ha": "right"} if named and turned else {}))
    axes.set(xlabel=for_matplotlib(chart["x_name"]), ylabel=for_matplotlib(chart["y_name"]))
