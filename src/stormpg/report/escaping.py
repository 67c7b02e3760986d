"""Escaping of text for output. Names come from flags and files and may contain anything.

One function for each target: the terminal, Markdown and matplotlib. (The page uses `html.escape`.)
"""

import re


def for_terminal(text: str) -> str:
    """Replace control characters, which could move the cursor or change the window, by Python escapes."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def for_markdown(text: str) -> str:
    """Put text on one line and escape Markdown, also inside tables."""
    return re.sub(r"([\\`|<\[\]*])", r"\\\1", _line(text))


def as_code(text: str) -> str:
    """A name as inline code in Markdown."""
    return f"`{_line(text).replace('`', chr(39)).replace('|', '¦')}`"


def for_matplotlib(text: str, most: int = 80) -> str:
    """Escape $, which starts a formula, and truncate the text to `most` characters so that it fits into a figure."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return for_terminal(short).replace("$", r"\$")


def _line(text: str) -> str:
    return " ".join(for_terminal(text).split())
