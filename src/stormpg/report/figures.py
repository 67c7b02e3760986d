"""Learning curves for print, drawn by matplotlib without a display."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpg.report.escaping import for_matplotlib
from stormpg.report.palette import GREY, MANY, Style

PANEL, LEGEND = (5.2, 4.6), 1.6  # sizes in inches
REACH = 200  # a logarithmic axis reaches from this part of the budget to the whole
ROWS = 16  # of a column of the legend


def save(figure: Any, files: Sequence[Path], dpi: int) -> None:
    """Write a figure. Names may be too wide, or have characters missing from the font, which are shown as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from|constrained_layout not applied")
        for file in files:
            figure.savefig(file, dpi=dpi, metadata={"CreationDate": None} if file.suffix == ".pdf" else None)


def learning_curves(
    env: Mapping[str, Any],
    protocols: Sequence[str],
    labels: Mapping[str, str],
    looks: Mapping[str, Style],
    subtitle: str,
    files: Sequence[Path],
) -> None:
    """Draw return against trajectories: a panel for each protocol, and a line with a band for each algorithm."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [p for p in protocols if any(p in a["curves"] for a in env["algorithms"].values())]
    figure = Figure(figsize=(PANEL[0] * len(shown) + LEGEND, PANEL[1]), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    drawn: dict[str, Any] = {}
    for axes, protocol in zip(panels, shown, strict=True):
        curves = {name: a["curves"][protocol] for name, a in env["algorithms"].items() if protocol in a["curves"]}
        one = next(iter(curves.values()))
        grid = np.array(one.get("grid", env["grid"]))  # tuned runs have their own budget
        for name, curve in curves.items():
            drawn.setdefault(name, draw_curve(axes, grid, curve, looks[name], name, len(curves)))
        if env["ceiling"] is not None:
            axes.axhline(env["ceiling"], color=GREY, linewidth=0.8, zorder=0)
        axes.set_title(f"{labels[protocol]}\n{one['statistic']} of {one['seeds']} runs", loc="left", fontsize=10)
        log = bool(env.get("log")) and grid[0] > 0
        first = max(grid[0], grid[-1] / REACH) if log else 0
        axes.set(xlabel="trajectories sampled", xscale="log" if log else "linear", xlim=(first, grid[-1]))
        few_ticks(axes.xaxis, log)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("undiscounted return")
    figure.suptitle(for_matplotlib(env["title"]), x=0.01, ha="left", fontsize=13, fontweight="bold")
    legend(figure, [name for name in looks if name in drawn], drawn)
    figure.supxlabel(subtitle, x=0.01, ha="left", fontsize=8, color="0.35")
    save(figure, files, 200)


def draw_curve(axes: Any, grid: np.ndarray, curve: Mapping[str, Any], look: Style, name: str, count: int) -> Any:
    """Draw a line and its band. The heaviest line is on top; if there are many lines, only that one has a band."""
    estimate, low, high = (np.array(curve[key], dtype=float) for key in ("estimate", "low", "high"))
    heavy = look.width > 2
    (line,) = axes.plot(grid, estimate, **look.line(), zorder=4 if heavy else 3, label=for_matplotlib(name, 24))
    if heavy or count <= MANY:
        axes.fill_between(
            grid, low, high, color=look.colour, alpha=0.2 if heavy else 0.1, linewidth=0, zorder=2 if heavy else 1
        )
    return line


def legend(figure: Any, names: Sequence[str], drawn: Mapping[str, Any]) -> None:
    """One legend for all panels, on their right: the heaviest line first."""
    lines = sorted((drawn[name] for name in names), key=lambda line: -line.get_linewidth())
    shape: dict[str, Any] = {"ncols": -(-len(lines) // ROWS), "frameon": False, "fontsize": 10, "handlelength": 3.4}
    figure.legend(handles=lines, loc="outside right upper", **shape)


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
