"""Figures, by matplotlib, without a screen."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stormpg.stats import Interval

# Okabe and Ito's colours, which people with any colour vision tell apart, and dashes for those who see none.
STYLES = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#E69F00", "-"),
    ("#56B4E9", "--"),
    ("#000000", "-."),
)


def learning_curves(
    curves: Mapping[str, Interval], grid: np.ndarray, title: str, subtitle: str, file: Path, ceiling: float | None = None
) -> None:
    """Return against trajectories, a line and a band for each algorithm."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (name, curve), (colour, dash) in zip(curves.items(), STYLES * len(curves), strict=False):
        axes.plot(grid, curve.estimate, dash, color=colour, label=name, linewidth=2)
        axes.fill_between(grid, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    if ceiling is not None:
        axes.axhline(ceiling, color="0.6", linewidth=0.8, zorder=0)
    axes.set(xlabel="trajectories sampled", ylabel="undiscounted return", xlim=(0, grid[-1]))
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=24)
    axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, color="0.3", va="bottom")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(file, dpi=160)
