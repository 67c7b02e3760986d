"""A progress bar for notebooks: HTML that replaces itself. It needs no widgets, and its last state stays in the file."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from stormpg.report.escaping import for_terminal
from stormpg.report.palette import COLOURS
from stormpg.report.progress import Progress, shown

SECONDS = 0.1  # between two updates


def in_notebook() -> bool:
    """Whether the output of this process is shown in a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar. Yields a function that takes a `Progress`. The last state stays."""
    from IPython.display import display

    began, label = time.perf_counter(), for_terminal(label)
    handle: Any = display(Bar(label, 0.0, "compiling"), display_id=True)
    last, latest = began, Bar(label, 0.0, "compiling")

    def show(now: Progress) -> None:
        nonlocal last, latest
        one, spent = shown(now), time.perf_counter() - began
        left = f", {spent * (one.total - one.done) / one.done:.0f} s left" if 0 < one.done < one.total else ""
        numbers = f"{one.done:,} of {one.total:,} {one.unit}  {one.words}  {spent:.1f} s{left}"
        latest = Bar(label, one.done / one.total, numbers)
        if time.perf_counter() - last > SECONDS:
            handle.update(latest)
            last = time.perf_counter()

    try:
        yield show
    finally:
        handle.update(latest)


class Bar:
    """One state of a progress bar."""

    def __init__(self, label: str, share: float, numbers: str) -> None:
        self.label, self.share, self.numbers = label, share, numbers

    def __repr__(self) -> str:
        return f"{self.label}: {self.numbers}"

    def _repr_html_(self) -> str:
        track = "display:inline-block;width:110px;height:8px;border-radius:4px;background:rgba(128,128,128,.3);margin:0 10px"
        full = f"width:{100 * self.share:.1f}%;height:8px;border-radius:4px;background:{COLOURS[0]}"
        numbers = escape(self.numbers).replace("  ", " &nbsp; ")
        return (
            f'<div style="font:13px/1.6 system-ui,sans-serif;font-variant-numeric:tabular-nums">{escape(self.label)}'
            f'<span style="{track}"><span style="display:block;{full}"></span></span>{numbers}</div>'
        )
