"""Colours, line styles and colour scales: the same on the page, in print and in notebooks.

The colours are the Okabe–Ito palette and both scales are safe for colour-blind readers; dashes are for black-and-white print.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B")
GREY = "#8A8A8A"  # of lines that are no algorithm
DASHES = ((), (4.0, 1.8), (1.2, 1.6), (6.4, 1.6, 1.2, 1.6), (8.0, 2.5))  # on, off, ..., in widths of the line
SEQUENTIAL = ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838")  # cividis
DIVERGING = ("#7f3b08", "#b25706", "#e08214", "#fcb761", "#fee0b6", "#f6f6f7", "#d8daeb", "#b1aad1", "#8073ac", "#532687",
             "#2d004b")  # PuOr  # fmt: skip
SUBJECT = "storm-pg"  # what most reports are about
WIDTH, SUBJECT_WIDTH = 1.6, 3.2
MANY = 8  # with more lines in a figure, only the subject has a band


class Style(NamedTuple):
    """How a line is drawn."""

    colour: str
    dash: tuple[float, ...]
    width: float

    def line(self) -> dict[str, Any]:
        """The arguments of matplotlib's `plot`."""
        return {"color": self.colour, "linestyle": (0, self.dash) if self.dash else "-", "linewidth": self.width}


def style(place: int) -> Style:
    """The style of the line at a place, which no other place has: seven colours, then the same with other dashes."""
    lap, colour = divmod(place, len(COLOURS))
    # Neighbours differ in their dashes too. A colour meets each dash once: 3 and the number of dashes have no common divisor.
    # Later laps have a dash with more and more dots.
    dash: tuple[float, ...] = (6.4, 1.6, *((1.2, 1.6) * (lap - 3)))
    dash = DASHES[(colour + 3 * lap) % len(DASHES)] if lap < len(DASHES) else dash
    return Style(COLOURS[colour], dash, SUBJECT_WIDTH if place == 0 else WIDTH)


def subject(names: Iterable[str]) -> str | None:
    """The algorithm that a report is about: STORM-PG if it is there, otherwise the first."""
    several = list(names)
    return next((name for name in several if name.split()[:1] == [SUBJECT]), several[0] if several else None)


def styles(names: Iterable[str], chosen: str | None = None) -> dict[str, Style]:
    """The style of each name. `chosen`: the subject, which has the first style and the heaviest line."""
    several = list(dict.fromkeys(names))
    first = chosen if chosen in several else subject(several)
    ordered = sorted(several, key=lambda name: name != first)  # stable: the others keep their order
    found = {name: style(place) for place, name in enumerate(ordered)}
    return {name: found[name] for name in several}


def styles_of(data: Mapping[str, Any]) -> dict[str, Style]:
    """One style for each name in the data of a report, so that it looks the same in all its figures."""
    names: list[str] = []
    for env in data.get("environments") or ():
        names += [*(env.get("algorithms") or {}), *((env.get("profiles") or {}).get("algorithms") or {})]
        names += [pair[key] for pair in env.get("improvement") or () for key in ("x", "y")]
    for part in data.get("variance") or ():
        names += part.get("algorithms") or {}
    names += [one["name"] for chart in data.get("charts") or () for one in chart.get("series") or ()]
    return styles(map(str, names), data.get("subject"))


def colour_map(stops: Iterable[str]) -> Any:
    """A colour scale for matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("stormpg", list(stops))
