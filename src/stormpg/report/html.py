"""Pieces of the page as HTML: escaped text, inline Markdown, sections, tables, and data and scripts that are safe inside it."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

# Code first, as nothing inside it is Markdown; then links, bold and emphasis.
INLINE = re.compile(
    r"`([^`\n]+)`|\[([^\]\n]+)\]\((https?://[^\s()]+)\)|\*\*(\S|\S.*?\S)\*\*|(?<![\w*])\*(\w|\w[^*]*?\S)\*(?![\w*])"
)


def text(value: Any) -> str:
    """Escape text for HTML, including attributes."""
    return escape(str(value))


def inline(value: Any) -> str:
    """Text with inline Markdown as HTML: code, links to web pages, bold and emphasis. Everything else is escaped."""
    words, parts, last = str(value), [], 0
    for found in INLINE.finditer(words):
        code, label, address, bold, emphasis = found.groups()
        made = f"<code>{text(code)}</code>" if code else ""
        made = made or (f'<a href="{text(address)}">{text(label)}</a>' if label else "")
        made = made or (f"<strong>{inline(bold)}</strong>" if bold else f"<em>{inline(emphasis)}</em>")
        parts += [text(words[last : found.start()]), made]
        last = found.end()
    return "".join((*parts, text(words[last:])))


def ending(script: str) -> str:
    """Normalise the line endings of a script, as a browser does before it computes the hash."""
    return script.replace("\r\n", "\n").replace("\r", "\n")


def fingerprint(script: str) -> str:
    """The hash of a script for the page's Content-Security-Policy, which allows no other script to run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def embedded(data: Any) -> str:
    """The data as JSON that is safe inside HTML: ASCII, and without <."""
    return json.dumps(plain(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def plain(value: Any) -> Any:
    """Convert a value to JSON types. NaN and infinity, which JSON does not have, become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        # float32 has no more digits than this, and the curves of single runs make up most of the page.
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def section(name: str, heading: str, *parts: str) -> str:
    """A section of the page. The heading is text."""
    head = f'<section id="{name}" aria-labelledby="{name}-heading">\n<h2 id="{name}-heading">{text(heading)}</h2>'
    return "\n".join((head, *(part for part in parts if part), "</section>"))


def figures(name: str) -> str:
    """The place of figures, which the script fills."""
    return f'<div class="figures" id="{name}-figures"></div>'


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]], kind: str) -> str:
    """A table in a scrollable box that also works with the keyboard. The caption is text, the cells are HTML.

    The first cell of a row is its header.
    """
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    lines = [f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) for first, *rest in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return (
        f'<div class="scroll" role="region" aria-label="{text(caption)}" tabindex="0"><table class="{kind}">'
        f"<caption><span>{inline(caption)}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def folded(heading: str, content: str, shown: bool) -> str:
    """Content that a click on its heading shows and hides, also without JavaScript."""
    return f"<details{' open' if shown else ''}><summary>{text(heading)}</summary>{content}</details>"
