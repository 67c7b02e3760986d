"""The commands reproduce and compare."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stormpg.cli.base import HORIZON, Json, ResultsFolder, Workers, command, finish, need, this_command
from stormpg.cli.help import BUDGET, COMPARING
from stormpg.errors import InputError, choose
from stormpg.family import suite as family
from stormpg.report.tables import LEGEND, multiplicity, result_rows, short_verdicts, source
from stormpg.report.terminal import out, table, unit_bar
from stormpg.reproduce import reproduction
from stormpg.studies import comparison
from stormpg.studies.study import check_algorithms
from stormpg.studies.verdicts import count_verdicts
from stormpg.studies.workers import share_device, workers
from stormpg.studies.workspace import Workspace

COMPARED = "gpomdp,svrpg,srvr-pg,storm-pg"


def sized(text: str, *names: str, **limits: Any) -> Any:
    """An option about the runs of a study."""
    return typer.Option(*names, help=text, rich_help_panel=BUDGET, **limits)


Baseline = Annotated[str | None, sized("Baseline of all algorithms; their own by default.")]
Decay = Annotated[float | None, sized("Decay of the learning rate: η_t = η · decay^(t / decay-every).")]
DecayEvery = Annotated[int | None, sized("See --decay.", min=1)]


@command("reproduce", COMPARING)
def reproduce_command(
    folder: ResultsFolder = Path("results"),
    seeds: Annotated[int, sized("Number of seeds.", min=2)] = 30,
    full: Annotated[bool, sized("Also run equal tuning, robustness and variance.", "--full")] = False,
    trajectories: Annotated[int | None, sized("Limit every budget, for a quick look.", min=91)] = None,
    baseline: Baseline = None,
    decay: Decay = None,
    decay_every: DecayEvery = None,
    where: Workers = None,
    as_json: Json = False,
) -> None:
    """Repeat the paper's experiments: both figures, a verdict on every claim."""
    need("report")
    share_device()
    plan = reproduction.Plan(seeds, trajectories, baseline=baseline, decay=decay, decay_every=decay_every)
    with workers(where) as those, unit_bar("reproduce") as report:
        data = reproduction.reproduce(Workspace(folder, report, workers=those), plan, full, [this_command()])
    show(data, folder, as_json)


@command("compare", COMPARING)
def compare_command(
    env: Annotated[
        str | None,
        typer.Argument(metavar="ENV", help="The environment, see `stormpg list`; with --suite, some of its tasks."),
    ] = None,
    algorithms: Annotated[str | None, sized(rf"Separated by commas. \[default: {COMPARED}; with --suite all]")] = None,
    trajectories: Annotated[
        int | None, sized(r"Budget of each run; with --suite a limit for all budgets. \[default: 1000]", min=1)
    ] = None,
    seeds: Annotated[int | None, sized(r"Number of seeds. \[default: 30; with --suite 16 in JAX, 5 outside]", min=2)] = None,
    horizon: Annotated[int | None, sized(HORIZON, min=1)] = None,
    tune: Annotated[bool, sized("Also tune all algorithms with equal budgets.", "--tune")] = False,
    suite: Annotated[str | None, sized("family: STORM-PG and all successors on twelve tasks.")] = None,
    baseline: Baseline = None,
    decay: Decay = None,
    decay_every: DecayEvery = None,
    folder: ResultsFolder = Path("comparison"),
    where: Workers = None,
    as_json: Json = False,
) -> None:
    """Compare algorithms on one environment, or the whole family.

    Page and statistics are those of `reproduce`. Settings are those of `train`: the paper's on its tasks, else the defaults.
    """
    need("report")
    share_device()
    if suite is not None:
        choose("suite", suite, (family.NAME,))
        given = {"--horizon": horizon, "--tune": tune, "--baseline": baseline, "--decay": decay, "--decay-every": decay_every}
        unused = [name for name, value in given.items() if value not in (None, False)]
        if unused:
            raise InputError(f"--suite family has its own settings: leave out {' and '.join(unused)}.")
        sizes: dict[str, Any] = {
            "seeds": seeds,
            "trajectories": trajectories,
            "envs": names_of(env),
            "algorithms": names_of(algorithms),
        }
        chosen = family.Suite(**{name: value for name, value in sizes.items() if value is not None})
        with workers(where, processes=True) as those, unit_bar("compare") as report:
            data = family.compare(Workspace(folder, report, workers=those), chosen, [this_command()])
        show(data, folder, as_json)
        return
    if env is None:
        raise InputError("no environment is given: name one, see `stormpg list`, or give --suite family.")
    names = check_algorithms(names_of(algorithms or COMPARED) or ())
    switches: dict[str, Any] = {"baseline": baseline, "decay": decay, "decay_every": decay_every}
    wanted = comparison.Comparison(env, tuple(names), trajectories or 1000, seeds or 30, horizon, **switches)
    with workers(where) as those, unit_bar("compare") as report:
        data = comparison.compare(Workspace(folder, report, workers=those), wanted, tune, [this_command()])
    show(data, folder, as_json)


def names_of(given: str | None) -> tuple[str, ...] | None:
    """Comma-separated names; None if none are given."""
    return None if given is None else tuple(name.strip() for name in given.split(",") if name.strip())


def show(data: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    """Print results and verdicts, and where the files are."""
    headings = [protocol["short"] for protocol in data["protocols"].values()]
    for env in data["environments"]:
        table(env["title"], ("return at the end", *headings), result_rows(data, env))
    for one in data.get("tables") or ():
        if not one.get("long"):  # a terminal is too narrow for sentences in a table: they are on the page
            table(one["title"], one["heads"], one["rows"])
    for env in dict.fromkeys(claim["env"] for claim in data["claims"]):
        table(f"Claims of {source(data)} on {env}", ("claim", "paper", *headings), short_verdicts(data, env))
    if data["claims"]:
        out.print(f"{LEGEND} Intervals are in tables.md.", highlight=False)
        for key, protocol in data["protocols"].items():
            counts = count_verdicts(data["claims"], key)
            out.print(f"{protocol['label']}: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()), highlight=False)
        for sentence in multiplicity(data):
            out.print(sentence, highlight=False)
    if data.get("findings"):
        out.print(data["findings"].replace("`", ""), highlight=False)
    page = folder / "report.html"
    size = f"{page.stat().st_size / 1e6:.1f} MB"
    out.print(f"Open {page} ({size}); figures, tables.md, claims.json and all runs are in the same folder.", highlight=False)
    claims = {claim["id"]: {k: r["verdict"] for k, r in claim["results"].items()} for claim in data["claims"]}
    finals = {
        env["name"]: {
            name: {key: curve["estimate"][-1] for key, curve in shown["curves"].items()}
            for name, shown in env["algorithms"].items()
        }
        for env in data["environments"]
    }
    finish(as_json, {"folder": str(folder), "final_return": finals, "claims": claims})
