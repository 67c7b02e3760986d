"""Colours and line styles, the same on the page and in print.

The colours are the Okabe–Ito palette, which is safe for colour-blind readers. Line styles are for black-and-white print. An
algorithm has the style of its position in a comparison; after the last style they repeat.
"""

import itertools

STYLES = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#E69F00", "-"),
    ("#56B4E9", "--"),
    ("#8A8A8A", "-."),
)
SUBJECT = "storm-pg"  # what the reports are about: its line is the heaviest, and above the others
WIDTH, SUBJECT_WIDTH = 1.6, 3.0
COLOURS = [colour for colour, _ in STYLES]
PAGE_DASHES = ["solid", "dash", "dashdot", "dot", "solid", "dash", "longdashdot"]  # the same, as the page names them


def styles(count: int) -> list[tuple[str, str]]:
    """The colour and the line style of each of `count` lines."""
    return list(itertools.islice(itertools.cycle(STYLES), count))


def width(name: str) -> float:
    """The width of the line of an algorithm."""
    return SUBJECT_WIDTH if name == SUBJECT else WIDTH
