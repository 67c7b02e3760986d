"""Docstrings of the API reference (mkdocs.yml).

mkdocstrings reads the source. Here constructors of algorithms get their docstrings at run time, which have the settings, and
arguments that are listed in two columns, which look right in `help`, become tables.
"""

import inspect
import re
from typing import Any

import griffe

from stormpg.algorithms import ALGORITHMS

CONSTRUCTORS = {inspect.unwrap(make).__name__: inspect.getdoc(make) or "" for make in ALGORITHMS.values()}
DEFAULT = re.compile(r" Default: .*?\.(?= Tuned over|$)", re.MULTILINE)  # the reference has a column for it
# A name or several, two spaces or more, and a text that may go on in lines that begin with spaces.
LISTED = re.compile(r"((?:^[A-Za-z_]\w*(?:, \w+)* {2,}\S.*\n?(?:^ {4,}\S.*\n?)*)+)", re.MULTILINE)
ENTRY = re.compile(r"^([A-Za-z_]\w*(?:, \w+)*) {2,}(\S.*(?:\n {4,}\S.*)*)", re.MULTILINE)


def as_table(listed: re.Match[str]) -> str:
    """Arguments in two columns as a table in Markdown."""
    rows = [(names, " ".join(text.split()).replace("|", "\\|")) for names, text in ENTRY.findall(listed[1])]
    lines = [f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {text} |" for names, text in rows]
    return "\n".join(["| argument | |", "|---|---|", *lines, ""])


class Docstrings(griffe.Extension):
    """Changes docstrings before they are rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if obj.is_function and obj.path.startswith("stormpg.algorithms.") and obj.name in CONSTRUCTORS:
            obj.docstring.value = DEFAULT.sub("", CONSTRUCTORS[obj.name])
        elif obj.is_function or obj.is_class:
            obj.docstring.value = LISTED.sub(as_table, obj.docstring.value)
