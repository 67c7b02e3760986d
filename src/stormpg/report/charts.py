"""Charts of a report for print: lines with intervals, bars, or a grid of numbers. The page draws the same data (assets/)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpg.errors import InputError
from stormpg.report.escaping import for_matplotlib
from stormpg.report.figures import few_ticks, save
from stormpg.report.palette import COLOURS, DIVERGING, MANY, SEQUENTIAL, Style, colour_map, styles_of

COLUMNS = 3
MOST = 60  # maximum number of panels of a figure, and of rows or columns of a grid


def line_chart(
    section: str, title: str, x_name: str, y_name: str, log: str, series: Sequence[Any], note: str = "", **more: Any
) -> dict[str, Any]:
    """The data of a line chart, for the page and for figures. `log`: the logarithmic axes, such as "x" or "xy"."""
    names = {"x_name": x_name, "y_name": y_name}
    return {"section": section, "title": title, **names, "log": log, "series": list(series), "note": note, "wide": True, **more}


def draw_charts(charts: Sequence[Mapping[str, Any]], files: Sequence[Path], looks: Mapping[str, Style] | None = None) -> None:
    """Draw all charts of a section as the panels of one figure. `looks`: the styles of all names of the report."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    grids = [chart for chart in charts if "final" in chart]
    cells, tallest = (max((len(chart[axis]) for chart in grids), default=0) for axis in "xy")
    if max(cells, tallest, len(charts)) > MOST:
        raise InputError(
            f"a figure of {len(charts)} panels with {cells} columns is too large; expected at most {MOST} of each."
        )
    columns = min(len(charts), 1 if cells > 8 else COLUMNS)
    rows = -(-len(charts) // columns)
    size = (max(4.4, 0.8 * cells), max(3.2, 0.28 * tallest)) if cells else (6.0, 5.0)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    looks = styles_of({"charts": charts}) if looks is None else looks
    for axes, chart in zip(panels, charts, strict=False):
        if "final" in chart:
            alike = [other for other in grids if other.get("label") == chart.get("label")]
            image = grid(axes, chart, *scale_of(alike))
            if chart is alike[-1]:  # all panels of one kind share a scale, and its bar
                of_kind = [panel for panel, other in zip(panels, charts, strict=False) if any(other is one for one in alike)]
                colour_bar(figure, image, of_kind, chart)
        elif "bars" in chart:
            bars(axes, chart)
        else:
            lines(axes, chart, looks)
        axes.set_title(for_matplotlib(chart["title"]), loc="left", fontsize=10)
    for axes in panels[len(charts) :]:
        axes.axis("off")
    figure.suptitle(for_matplotlib(charts[0]["section"]), x=0.01, ha="left", fontsize=13, fontweight="bold")
    if grids:
        figure.supxlabel(for_matplotlib(key_of(grids), 200), x=0.01, ha="left", fontsize=9, color="0.35")
    save(figure, files, 160)


def key_of(grids: Sequence[Mapping[str, Any]]) -> str:
    """What the signs in the cells mean."""
    star = next((chart.get("star", "marked") for chart in grids if "marked" in chart), None)
    empty = any(value is None or not np.isfinite(value) for chart in grids for row in chart["final"] for value in row)
    cross = next((chart["cross"] for chart in grids if "cross" in chart), "no value")
    return "     ".join([*([f"*  {star}"] if star else []), *([f"×  {cross}"] if empty else [])])


def lines(axes: Any, chart: Mapping[str, Any], looks: Mapping[str, Style]) -> None:
    """Draw a line and a band for each series. If there are many, only the heaviest has a band."""
    heaviest = max(looks[series["name"]].width for series in chart["series"])
    for series in chart["series"]:
        x, y, look = numbers(series["x"]), numbers(series["estimate"]), looks[series["name"]]
        shown: dict[str, Any] = {**look.line(), "marker": "o" if len(x) < 20 else None, "markersize": 4}
        if series.get("points"):
            shown |= {"marker": "o", "linestyle": "none"}
        axes.plot(x, y, label=for_matplotlib(series["name"]), zorder=3 + (look.width == heaviest), **shown)
        if "low" in series and (len(chart["series"]) <= MANY or look.width == heaviest):
            low, high = numbers(series["low"]), numbers(series["high"])
            axes.fill_between(x, low, high, color=look.colour, alpha=0.16, linewidth=0)
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
    axes.legend(fontsize=8, frameon=False, handlelength=3.4)


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """Values as floats, with NaN instead of None."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def bars(axes: Any, chart: Mapping[str, Any]) -> None:
    """Draw a bar for each name, with the first at the top."""
    axes.barh([for_matplotlib(name) for name in chart["names"][::-1]], chart["bars"][::-1], color=COLOURS[0])
    axes.set(xlabel=for_matplotlib(chart["x_name"]))
    axes.spines[["top", "right"]].set_visible(False)


def scale_of(alike: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    """The colour map and the norm of all grids of one kind. A ratio of 1 is the middle, unless there is a `range`."""
    from matplotlib.colors import LogNorm, Normalize

    if "range" in alike[0]:
        return colour_map(SEQUENTIAL), Normalize(*alike[0]["range"])
    z = np.concatenate([numbers([value for row in chart["final"] for value in row]) for chart in alike])
    known = z[np.isfinite(z) & (z > 0)]
    spread = max(2.0, *(np.maximum(known, 1 / known) if known.size else (2.0,)))
    return colour_map(DIVERGING), LogNorm(1 / spread, spread)


def colour_bar(figure: Any, image: Any, panels: Sequence[Any], chart: Mapping[str, Any]) -> None:
    """A colour bar for all panels of one kind."""
    from matplotlib.ticker import FuncFormatter

    bar = figure.colorbar(image, ax=panels, label=for_matplotlib(chart.get("label", "")), aspect=30, pad=0.02)
    if "range" not in chart:
        low, high = image.norm.vmin, image.norm.vmax
        bar.set_ticks([low, 1.0, high] if high < 5 else [low, high**-0.5, 1.0, high**0.5, high])
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}" if value < 100 else f"{value:.0f}"))
        bar.minorticks_off()
    bar.outline.set_visible(False)


def grid(axes: Any, chart: Mapping[str, Any], colours: Any, norm: Any) -> Any:
    """Draw a grid of cells, each with its number."""
    z = np.array([numbers(row) for row in chart["final"]])
    digits = ".2f" if "range" in chart else ".2g"
    image = axes.imshow(np.ma.masked_invalid(z), cmap=colours, norm=norm, origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(z):
        text = f"{value:{digits}}".replace("-0.00", "0.00") if np.isfinite(value) else "×"
        text += "*" if "marked" in chart and chart["marked"][row][column] else ""
        dark = np.isfinite(value) and np.dot(colours(norm(value))[:3], (0.3, 0.59, 0.11)) < 0.46
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    for labels, place, turned in ((chart["x"], axes.set_xticks, True), (chart["y"], axes.set_yticks, False)):
        named = any(isinstance(label, str) for label in labels)
        shown = [for_matplotlib(label) if isinstance(label, str) else f"{label:.2g}" for label in labels]
        place(range(len(labels)), shown, fontsize=8, **({"rotation": 30, "ha": "right"} if named and turned else {}))
    axes.set(xlabel=for_matplotlib(chart["x_name"]), ylabel=for_matplotlib(chart["y_name"]))
    return image
