"""A chart of curves as SVG inside a notebook's cell, without matplotlib.

Text and axes have the colour of the text around the chart, so that it can be read on light and on dark ground. It has no
identifiers, because a page may show many of them.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 620, 230, 62, 8, 38  # pixels


class Line(NamedTuple):
    """A curve. Points that are not finite interrupt it. `label`: shown when the pointer is on the line."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    dash: tuple[float, ...] = ()  # on, off, ..., in widths of the line
    width: float = 1.0
    opacity: float = 1.0
    label: str = ""


def chart(lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Draw the lines, the last one on top."""
    right, height = WIDTH - LEFT - 8, HEIGHT - TOP - BOTTOM
    x_low, x_high = 0.0, max((float(line.x[-1]) for line in lines), default=1.0) or 1.0
    y_low, y_high = limits([line.y for line in lines])

    def across(x: Any) -> Any:
        return (x - x_low) / (x_high - x_low) * right

    def down(y: Any) -> Any:
        return (y_high - y) / (y_high - y_low) * height

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" style="display:block;width:100%;max-width:{WIDTH}px;height:auto" role="img" '
        f'aria-label="{escape(y_label)} against {escape(x_label)}" font-family="inherit" font-size="11" fill="currentColor">'
    ]
    for y in ticks(y_low, y_high):
        at = TOP + down(y)
        parts.append(f'<path d="M{LEFT} {at:.1f}h{right}" stroke="currentColor" stroke-opacity=".15"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill-opacity=".8">{y:,.10g}</text>')
    for x in ticks(x_low, x_high):
        at, anchor = LEFT + across(x), "end" if across(x) > right - 10 else "middle"
        parts.append(f'<text x="{at:.1f}" y="{TOP + height + 15}" text-anchor="{anchor}" fill-opacity=".8">{x:,.10g}</text>')
    parts.append(f'<path d="M{LEFT} {TOP + height}h{right}" stroke="currentColor" stroke-opacity=".5"/>')
    middle = LEFT + right / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle" fill-opacity=".8">{escape(x_label)}</text>')
    aside = f'transform="translate(11 {TOP + height / 2:.0f}) rotate(-90)"'
    parts.append(f'<text {aside} text-anchor="middle" fill-opacity=".8">{escape(y_label)}</text>')
    parts.append(f'<svg x="{LEFT}" y="{TOP}" width="{right}" height="{height}" overflow="hidden" fill="none">')
    for line in lines:
        lengths = " ".join(f"{length * line.width:.1f}" for length in line.dash)
        dash = f' stroke-dasharray="{lengths}"' if lengths else ""
        title = f"<title>{escape(line.label)}</title>" if line.label else ""
        parts.append(
            f'<path d="{path(across(line.x), down(line.y))}" stroke="{line.colour}" stroke-width="{line.width:g}" '
            f'stroke-opacity="{line.opacity:g}" stroke-linejoin="round"{dash}>{title}</path>'
        )
    return "".join([*parts, "</svg></svg>"])


def path(x: np.ndarray, y: np.ndarray) -> str:
    """The points of a line, without those that are not finite. Far outside, a point is at the edge of what renderers draw."""
    found, start = [], True
    for at, height in zip(x.tolist(), np.clip(y, -1e4, 1e4).tolist(), strict=True):
        if math.isfinite(height):
            found.append(f"{'M' if start else 'L'}{at:.4g} {height:.4g}")
        start = not math.isfinite(height)
    return "".join(found)


def limits(curves: Sequence[np.ndarray]) -> tuple[float, float]:
    """The range of the vertical axis: all values but the outermost hundredth on each side, which one bad seed may fill."""
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves]) if curves else np.empty(0)
    if not len(values):
        return 0.0, 1.0
    low, high = (float(edge) for edge in np.quantile(values, (0.01, 0.99)))
    room = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
    return low - room, high + room


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two numbers."""
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
