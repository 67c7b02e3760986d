"""Markdown for the pages that are written from code and stored results."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent
ROOT = DOCS.parent


class Part(NamedTuple):
    """What is written into a file, between the marks `<!-- NAME -->` and `<!-- end of NAME -->`."""

    file: Path
    name: str
    content: str


def stored(file: Path) -> Any:
    """The content of a stored result."""
    return json.loads(file.read_text(encoding="utf-8"))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, whose cells may have links and code."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (heads, *rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], ["---"] * len(heads), *lines[1:]))


def marked(text: str, name: str, content: str) -> str:
    """The text with the content between two marks replaced."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    first, last = text.index(begin) + len(begin), text.index(end)
    return text[:first] + content + text[last:]


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def page_of(name: str) -> str:
    """A link to the page of an algorithm, from a page in docs/."""
    return f"[{name}](algorithms/{name}.md)"


def signed(number: float) -> str:
    """A difference, with its sign."""
    return f"{number:+.2f}".replace("-", "−")


def plain(number: float) -> str:
    """A score."""
    return f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−")


def span(three: Sequence[float], number: Any = plain) -> str:
    """An estimate with its interval, which no line break parts."""
    estimate, low, high = three
    return f"{number(estimate)} ({number(low)}\u00a0to\u00a0{number(high)})"
