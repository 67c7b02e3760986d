"""The command report, for folders that train, reproduce, compare, tune or theory has written."""

from pathlib import Path
from typing import Annotated

import typer

from stormpg.cli import theory, tuning
from stormpg.cli.base import Json, command, this_command
from stormpg.cli.help import COMPARING
from stormpg.cli.studies import show
from stormpg.engine.budget import LIMIT
from stormpg.envs.from_files import check_name
from stormpg.errors import InputError, choose, legible
from stormpg.family import suite as family
from stormpg.files.reading import as_record
from stormpg.reproduce import reproduction
from stormpg.studies import comparison
from stormpg.studies.study import ABOUT, read_about
from stormpg.studies.workspace import Workspace


@command("report", COMPARING)
def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or the folder of one study.")],
    folder: Annotated[Path | None, typer.Option("--out", help="Folder to write to; a study's own folder by default.")] = None,
    as_json: Json = False,
) -> None:
    """Rebuild figures and page from stored runs, without training."""
    if len(runs) == 1 and (runs[0] / ABOUT).is_file():
        if folder is not None and folder != runs[0]:
            raise InputError(f"{runs[0]} is a study, and its report is written to its own folder: leave out --out {folder}.")
        rebuild(runs[0], as_json)
    else:
        folder = folder or Path("report")
        with legible(f"the content of {' and '.join(map(str, runs))}"):
            show(comparison.report_runs(runs, folder, [this_command()]), folder, as_json)


def rebuild(root: Path, as_json: bool) -> None:
    """Rebuild the report of a study from its stored runs."""
    about, file = read_about(root), root / ABOUT
    kind = choose("kind of study", about.pop("kind", None), ("reproduce", "compare", family.NAME, "theory", "tune"))
    workspace, tuned = Workspace(root, train=False), (root / "tuning").is_dir()
    with legible(f"the content of {root}"):
        if kind == "reproduce":
            plan = as_record(reproduction.Plan, about, str(file), {"trajectories": LIMIT})
            show(reproduction.reproduce(workspace, plan, tuned, [this_command()]), root, as_json)
        elif kind == "compare":
            wanted = as_record(comparison.Comparison, about, str(file), {"trajectories": LIMIT})
            check_name(wanted.env, file)
            show(comparison.compare(workspace, wanted, tuned, [this_command()]), root, as_json)
        elif kind == family.NAME:
            suite = as_record(family.Suite, about, str(file), {"trajectories": LIMIT})
            show(family.compare(workspace, suite, [this_command()]), root, as_json)
        elif kind == "theory":
            theory.report(workspace, about, as_json)
        else:
            tuning.report(workspace, about, as_json)
