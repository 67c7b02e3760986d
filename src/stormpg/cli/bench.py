"""The command bench."""

from pathlib import Path
from typing import Annotated

import typer

from stormpg.bench.run import QUICK, SPEED, TABLES, measurable
from stormpg.cli.base import Json, command, finish
from stormpg.cli.help import ABOUT
from stormpg.report.terminal import doing, out, table

Files = Annotated[Path, typer.Option("--out", help="Folder for the result and its plots.")]
Against = Annotated[Path | None, typer.Option(help="An earlier result; lists the rows that got slower.")]
Tables = Annotated[
    str | None,
    typer.Option(help=f"Separated by commas: {', '.join(TABLES)}. \\[default: all about speed; with --quick five of them]"),
]
Load = Annotated[Path | None, typer.Option(help="Show a stored result instead of measuring.")]
Stored = Annotated[
    bool, typer.Option("--stored", help="Make the table `learning` from the runs stored so far, without new ones.")
]
Readme = Annotated[Path | None, typer.Option(help="Update the tables in this file, between its marks.")]


@command("bench", ABOUT)
def bench_command(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer cases; takes three minutes.")] = False,
    tables: Tables = None,
    against: Against = None,
    load: Load = None,
    stored_runs: Stored = False,
    readme: Readme = None,
    folder: Files = Path("benchmarks/results"),
    as_json: Json = False,
) -> None:
    """Measure the speed on this machine, beside C and other libraries.

    Also startup times, and the growth of time and memory.

    `--tables learning` measures what the default algorithm learns, beside Stable-Baselines3, and takes hours.
    """
    from stormpg.bench import tables as stored_tables
    from stormpg.bench.run import bench

    old = stored_tables.read(against) if against else None
    names = measurable(tuple(tables.split(",")) if tables else QUICK if quick else SPEED)
    if load:
        result = stored_tables.read(load)
    else:
        with doing("bench") as tell:
            measured = bench(names, quick, tell, out=folder, measure=not stored_runs)
            for result in measured:  # stored after each table, so that little is lost if it stops
                stored = stored_tables.store(result, folder)
    for one in result["tables"]:
        table(one["title"], *stored_tables.cells(one), one["note"] or None)
    if not load:
        out.print(f"Written to {stored}; figures are in {stored.with_suffix('')}", highlight=False, soft_wrap=True)
    if readme:
        stored_tables.write_readme(result, readme)
    slower_rows = list(stored_tables.slower(result, old)) if old else []
    if old:
        both = stored_tables.compared(result, old)
        summary = "None got slower" if not slower_rows else f"{len(slower_rows)} got slower"
        out.print(f"{summary}, of {both} rows that both results have ({old['date']} and {result['date']}).", highlight=False)
        for name, ratio in slower_rows:
            out.print(f"  {name}: {ratio:.2f} of the earlier speed", highlight=False)
    finish(as_json, {**result, "slower": dict(slower_rows)})
