"""Figures for print, drawn by matplotlib without a display."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpg.report.escaping import for_matplotlib
from stormpg.report.palette import SUBJECT, styles, width


def save(figure: Any, files: Sequence[Path], dpi: int) -> None:
    """Write a figure. Names may be too wide, or have characters missing from the font, which are shown as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from|constrained_layout not applied")
        for file in files:
            figure.savefig(file, dpi=dpi, metadata={"CreationDate": None} if file.suffix == ".pdf" else None)


def learning_curves(
    env: Mapping[str, Any], protocols: Sequence[str], labels: Mapping[str, str], subtitle: str, files: Sequence[Path]
) -> None:
    """Draw return against trajectories: a panel for each protocol, and a labelled line with a band for each algorithm."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [p for p in protocols if any(p in a["curves"] for a in env["algorithms"].values())]
    figure = Figure(figsize=(5.6 * len(shown), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, protocol in zip(panels, shown, strict=True):
        ends = []
        grid = np.array(_first(env, protocol).get("grid", env["grid"]))  # tuned runs have their own budget
        for (name, algorithm), (colour, dash) in zip(env["algorithms"].items(), styles(len(env["algorithms"])), strict=True):
            if (curve := algorithm["curves"].get(protocol)) is None:
                continue
            estimate, low, high = (np.array(curve[key], dtype=float) for key in ("estimate", "low", "high"))
            axes.plot(grid, estimate, dash, color=colour, linewidth=width(name), zorder=3 if name == SUBJECT else 2)
            axes.fill_between(grid, low, high, color=colour, alpha=0.16, linewidth=0)
            ends.append((name, colour, estimate))
        if env["ceiling"] is not None:
            axes.axhline(env["ceiling"], color="0.6", linewidth=0.8, zorder=0)
        one = _first(env, protocol)
        axes.set_title(f"{labels[protocol]}\n{one['statistic']} of {one['seeds']} runs", loc="left", fontsize=10)
        axes.set(xlabel="trajectories sampled", xlim=(0, grid[-1]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        label_lines(axes, grid, ends)
    panels[0].set_ylabel("undiscounted return")
    figure.suptitle(for_matplotlib(env["title"]), x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.supxlabel(subtitle, x=0.01, ha="left", fontsize=8, color="0.35")
    save(figure, files, 200)


def _first(env: Mapping[str, Any], protocol: str) -> Mapping[str, Any]:
    """The first curve under a protocol."""
    curve: Mapping[str, Any] = next(a["curves"][protocol] for a in env["algorithms"].values() if protocol in a["curves"])
    return curve


def label_lines(axes: Any, grid: np.ndarray, ends: Sequence[tuple[str, str, np.ndarray]]) -> None:
    """Write each line's name in its colour, at the height of a dot on the line. The name of the fastest line is at the top."""
    low, high = axes.get_ylim()
    levels = np.linspace(low + 0.62 * (high - low), low + 0.26 * (high - low), max(len(ends), 2))
    middle = (low + high) / 2

    def passes(y: np.ndarray, level: float) -> Any:
        return grid[int((y >= level).argmax())] if (y >= level).any() else np.inf

    right = 0.42 * grid[-1]
    for level, (name, colour, y) in zip(levels, sorted(ends, key=lambda end: passes(end[2], middle)), strict=False):
        at = passes(y, level)
        if at > right:  # the line reaches this level late or never: use its end
            at, level = grid[-1], y[-1]
        axes.plot([at, right], [level, level], color=colour, linewidth=0.7)
        axes.plot(at, level, "o", color=colour, markersize=4)
        axes.text(right, level, f" {for_matplotlib(name, 24)}", color=colour, fontsize=11, fontweight="bold", va="center")
