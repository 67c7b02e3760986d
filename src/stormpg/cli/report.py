"""The command report, for folders that train, reproduce, compare, tune or theory has written."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

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
            again = made_by(["reproduce"], plan, root, "--full" if tuned else "")
            show(reproduction.reproduce(workspace, plan, tuned, [again, this_command()]), root, as_json)
        elif kind == "compare":
            wanted = as_record(comparison.Comparison, about, str(file), {"trajectories": LIMIT})
            check_name(wanted.env, file)
            again = made_by(["compare"], wanted, root, "--tune" if tuned else "")
            show(comparison.compare(workspace, wanted, tuned, [again, this_command()]), root, as_json)
        elif kind == family.NAME:
            suite = as_record(family.Suite, about, str(file), {"trajectories": LIMIT})
            again = made_by(["compare", "--suite", family.NAME], suite, root)
            show(family.compare(workspace, suite, [again, this_command()]), root, as_json)
        elif kind == "theory":
            theory.report(workspace, about, as_json)
        else:
            tuning.report(workspace, about, as_json)


def made_by(words: Sequence[str], wanted: Any, root: Path, switch: str = "") -> str:
    """The command that makes a study, so that its page says how to repeat it and not only how to draw it again."""
    fields = {field.name: field.default for field in dataclasses.fields(wanted)}
    given = {name: getattr(wanted, name) for name, default in fields.items() if getattr(wanted, name) != default}
    texts = {name: str(value) if isinstance(value, str | int | float) else ",".join(value) for name, value in given.items()}
    place = [texts.pop(name) for name in ("env", "envs") if name in texts]
    flags = [word for name, text in texts.items() for word in (f"--{name.replace('_', '-')}", text)]
    return shlex.join(["stormpg", *words, *place, *flags, *[switch] * bool(switch), "--out", str(root)])
