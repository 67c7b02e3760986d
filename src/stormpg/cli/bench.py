"""Speed: bench."""

from pathlib import Path
from typing import Annotated

import typer

from stormpg.cli.base import Json, app, finish
from stormpg.report.terminal import doing, out, table

Files = Annotated[Path, typer.Option("--out", help="Folder for the result and its plots.")]
Against = Annotated[Path | None, typer.Option(help="An earlier result: name what got slower since.")]
Tables = Annotated[str | None, typer.Option(help="Some of the tables, with commas between. [all; with --quick five of them]")]
Load = Annotated[Path | None, typer.Option(help="Show a stored result instead of measuring.")]
Readme = Annotated[Path | None, typer.Option(help="Write the table of this file, between its marks.")]


@app.command("bench")
def bench_command(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer cases; ends in three minutes.")] = False,
    tables: Tables = None,
    against: Against = None,
    load: Load = None,
    readme: Readme = None,
    folder: Files = Path("benchmarks/results"),
    as_json: Json = False,
) -> None:
    """Speed here, beside C and other libraries; what a person waits for; how time and memory grow."""
    from stormpg.bench import tables as stored_tables
    from stormpg.bench.run import QUICK, TABLES, bench, measurable

    old = stored_tables.read(against) if against else None
    names = measurable(tuple(tables.split(",")) if tables else QUICK if quick else TABLES)
    if load:
        result = stored_tables.read(load)
    else:
        with doing("bench") as tell:
            for result in bench(names, quick, tell):  # stored after each table, so that little is lost
                stored = stored_tables.store(result, folder)
    for one in result["tables"]:
        table(one["title"], *stored_tables.cells(one), one["note"] or None)
    if not load:
        out.print(f"Written to {stored} and, as figures, to {stored.with_suffix('')}", highlight=False, soft_wrap=True)
    if readme:
        stored_tables.write_readme(result, readme)
    lost = list(stored_tables.slower(result, old)) if old else []
    if old:
        both = stored_tables.compared(result, old)
        said = "Nothing got slower" if not lost else f"{len(lost)} got slower"
        out.print(f"{said}, of {both} rows that both results have ({old['date']} and {result['date']}).", highlight=False)
        for name, ratio in lost:
            out.print(f"  {name}: {ratio:.2f} of the speed before", highlight=False)
    finish(as_json, {**result, "slower": dict(lost)})
