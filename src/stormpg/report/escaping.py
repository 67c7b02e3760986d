"""Text that means itself wherever it is shown. Names come from flags and files and may hold anything.

One function for each place: the terminal, Markdown, matplotlib. (The page has `html.escape`.)
"""

import re


def for_terminal(text: str) -> str:
    """Control characters, which could move the cursor or change the window, are shown as Python writes them."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def for_markdown(text: str) -> str:
    """On one line, and without marks, in a table too."""
    return re.sub(r"([\\`|<\[\]*])", r"\\\1", _line(text))


def as_code(text: str) -> str:
    """A name in Markdown's backticks."""
    return f"`{_line(text).replace('`', chr(39)).replace('|', '¦')}`"


def for_matplotlib(text: str, most: int = 80) -> str:
    """Without formulas, which $ begins, and cut after some letters: a figure has room for no more."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return for_terminal(short).replace("$", r"\$")


def _line(text: str) -> str:
    return " ".join(for_terminal(text).split())
