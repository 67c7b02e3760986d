"""Output of the command line: tables, and progress bars that are hidden if the output is not a terminal."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from stormpg.report.escaping import for_terminal
from stormpg.report.progress import Progress, shown


class Plain(Console):
    """A console that prints text literally, without markup."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects, with control characters escaped."""
        super().print(*(for_terminal(one) if isinstance(one, str) else one for one in objects), **options)


out = Plain()
err = Plain(stderr=True)
DESCRIPTION = TextColumn("{task.description}", markup=False)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None) -> None:
    """Print a table. Columns after the first are right-aligned if they hold numbers."""
    headings, rows = [for_terminal(heading) for heading in headings], [[for_terminal(cell) for cell in row] for row in rows]
    under = None if caption is None else for_terminal(caption)
    shown = Table(
        title=for_terminal(title),
        title_justify="left",
        caption=under,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for position, heading in enumerate(headings):
        numbers = all(row[position][:1] in "-0123456789" for row in rows if row[position])
        # Long cells are wrapped, not truncated.
        shown.add_column(heading, justify="right" if position and numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    out.print(shown)


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar. Yields a function that takes a `Progress`."""
    columns = (
        DESCRIPTION,
        BarColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),  # made below: there is no total while it compiles
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(f"{for_terminal(label)} (compiling)", total=None, numbers="")

        def show(now: Progress) -> None:
            one = shown(now)
            numbers = f"{one.done:,}/{one.total:,} {one.unit}  {one.words}"
            bar.update(task, description=for_terminal(label), completed=one.done, total=one.total, numbers=numbers)

        yield show


@contextlib.contextmanager
def unit_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar. Yields a function that takes the name of a finished unit, the number done and the total."""
    columns = (
        DESCRIPTION,
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(for_terminal(label), total=1)

        def show(name: str, done: int, of: int) -> None:
            bar.update(task, description=for_terminal(f"{label}: {name}"), completed=done, total=of)

        yield show


@contextlib.contextmanager
def doing(label: str) -> Iterator[Callable[[str], None]]:
    """Show the current activity. Yields a function that takes its description."""
    with Bar(DESCRIPTION, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(for_terminal(label), total=None)
        yield lambda what: bar.update(task, description=for_terminal(f"{label}: {what}"))
