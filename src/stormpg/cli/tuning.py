"""The command tune."""

import contextlib
import os
import socket
import sys
import threading
import time
import webbrowser
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from stormpg.algorithms import ALGORITHMS, make_algorithm
from stormpg.algorithms.settings import Choices, Range
from stormpg.cli.base import (
    AlgorithmName,
    Config,
    Env,
    Horizon,
    Json,
    ResultsFolder,
    Workers,
    command,
    file_option,
    finish,
    flag,
    need,
    this_command,
    with_settings,
)
from stormpg.cli.help import BUDGET, OTHER, SEARCH, TRAINING
from stormpg.errors import InputError, choose
from stormpg.paper import settings_for
from stormpg.policies.descriptions import describe_policy
from stormpg.policies.families import Gaussian
from stormpg.report.tables import result_rows
from stormpg.report.terminal import out, table, unit_bar
from stormpg.runs.options import OUTSIDE_OPTIONS, Job, without_secrets
from stormpg.studies.equal_tuning import FRESH_SEED, TUNING_SEED
from stormpg.studies.study import ABOUT, check_folder, claimed
from stormpg.studies.workers import share_device, workers
from stormpg.studies.workspace import Workspace
from stormpg.tune.objective import objective as objective_of
from stormpg.tune.packed_trials import check, parted
from stormpg.tune.plan import Problem, Search, from_about
from stormpg.tune.space import read_space, space_for

DATABASE = "study.db"


def searching(text: str, *names: str, **limits: Any) -> Any:
    """An option about the search."""
    return typer.Option(*names, help=text, rich_help_panel=SEARCH, **limits)


@command("tune", TRAINING)
@with_settings
def tune_command(
    env: Env = None,
    algorithm: AlgorithmName = None,
    trajectories: Annotated[str | None, flag("trajectories", int, "Budget of a trial that is not pruned.", BUDGET, 500)] = None,
    seeds: Annotated[str | None, flag("seeds", int, "Seeds of each trial, run as one batch.", BUDGET, 16)] = None,
    fresh_seeds: Annotated[
        int, typer.Option(min=2, help="Seeds of the final runs: the best setting and the default.", rich_help_panel=BUDGET)
    ] = 30,
    horizon: Horizon = None,
    trials: Annotated[int, searching("Number of settings to try, including pruned ones.", min=1)] = 64,
    objective: Annotated[str, searching("area, last or threshold; each is an IQM over seeds.")] = "area",
    threshold: Annotated[float | None, searching("The return to reach, for --objective threshold.")] = None,
    space: Annotated[Path | None, searching("TOML file with the search space.")] = None,
    generation: Annotated[int, searching("Trials requested at once; those of one shape run packed.", min=2)] = 16,
    no_halving: Annotated[
        bool, searching("Do not prune half of the trials at 1/4 and 1/2 of the budget.", "--no-halving")
    ] = False,
    seed: Annotated[str | None, flag("seed", int, "Seed of the sampler.", SEARCH, 0)] = None,
    storage: Annotated[str | None, file_option("--storage", "URL of an Optuna storage; a file in --out by default.")] = None,
    study: Annotated[str | None, file_option("--study", "Name of the study in the storage; ENV-ALGORITHM by default.")] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Open optuna-dashboard, for this machine only.", rich_help_panel=OTHER)
    ] = False,
    config: Config = None,
    folder: ResultsFolder = Path("tuning"),
    where: Workers = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Search for good settings of an algorithm.

    Settings given by flags or in the --config file are fixed, the others are tuned.

    At the end the best setting is compared with the default one (on the paper's tasks that of its tables) on fresh seeds.
    """
    need("report")
    share_device()
    from stormpg.tune import outcome, search
    from stormpg.tune import storage as studies

    flags = {"env": env, "algorithm": algorithm, "trajectories": trajectories, "seeds": seeds, "seed": seed, "horizon": horizon}
    job = Job({**flags, **settings}, config)
    count, first_seed = job.own.get("seeds", 16), job.own.get("seed", 0)
    if not 2 <= count <= FRESH_SEED - TUNING_SEED or not 0 <= first_seed < 2**31:
        most = FRESH_SEED - TUNING_SEED
        raise InputError(f"seeds is {count} and seed {first_seed}; expected 2 to {most} seeds, and a seed of at least 0.")
    if OUTSIDE_OPTIONS.keys() & job.own.keys():
        raise InputError("tune supports neither --async-envs nor --env-timeout: leave async_envs and env_timeout out.")
    name, goal = job.algorithm.name, objective_of(objective, threshold)
    numbers = tuple(range(TUNING_SEED, TUNING_SEED + count))
    problem = Problem(job.given["env"], name, job.own.get("trajectories", 500), numbers, job.horizon, goal)
    default = settings_for(job.env.name, name) | job.settings
    wanted_space = tuned(job, name, space)
    check(problem, default, wanted_space)  # mistakes are reported before anything is written
    fixed = {key: value for key, value in default.items() if key not in wanted_space}
    usual = {**make_algorithm(name, **parted(default)[0]).settings, **(describe_policy(job.policy) or {})}
    wanted = Search(problem, wanted_space, fixed, usual, trials, generation, not no_halving, first_seed)
    if dashboard:
        dashboard_module()
    url, named = storage or f"sqlite:///{folder / DATABASE}", study or f"{job.env.name}-{name}"
    about = {"kind": "tune", "study": named, "storage": without_secrets(storage) if storage else None, "fresh": fresh_seeds}
    about |= wanted.about() | {"default": default}
    with workers(where) as those, unit_bar("tune") as progress:
        if storage:  # connect first: if the storage does not answer, nothing is written here
            check_folder(folder, about)
            studies.close(studies.open_study(url, named, wanted.about(), goal.direction))
        workspace = Workspace(folder, progress, workers=those)
        with claimed(workspace, about, []):
            found = studies.open_study(url, named, wanted.about(), goal.direction)
            with contextlib.ExitStack() as end, studies.stored(url):
                end.callback(studies.close, found)
                if dashboard:
                    show_at(found._storage)
                search.run(workspace, wanted, found, alone=not storage)
                data = outcome.report(workspace, wanted, found, default, fresh_seeds, [this_command()])
                show(data, folder, as_json)
                wait_for_reader(dashboard)


def report(workspace: Workspace, about: dict[str, Any], as_json: bool) -> None:
    """Rebuild the report from the content of its folder."""
    from stormpg.tune import outcome
    from stormpg.tune import storage as studies

    wanted = from_about(about, workspace.root / ABOUT)
    if about["storage"]:
        raise InputError(
            f"the trials of {workspace.root} are in {about['storage']}: run the `stormpg tune` command again instead."
        )
    if not (workspace.root / DATABASE).is_file():
        raise InputError(
            f"{workspace.root / DATABASE}, which holds the trials, is missing: run the `stormpg tune` command again."
        )
    goal = wanted.problem.objective.direction
    study = studies.read_study(workspace.root / DATABASE, about["study"], wanted.about(), goal)
    data = outcome.report(workspace, wanted, study, about["default"], about["fresh"], [this_command()])
    show(data, workspace.root, as_json)


def tuned(job: Job, algorithm: str, file: Path | None) -> dict[str, Range | Choices]:
    """The space: the algorithm's own, or that of a file, without the settings that were given."""
    policy = getattr(job.policy, "policy", job.policy)  # the inner policy of a normalised one
    gaussian = isinstance(policy, Gaussian) and not job.given.get("learn_sigma")
    own = space_for(choose("algorithm", algorithm, ALGORITHMS), gaussian) if file is None else read_space(file, algorithm)
    twice = [name for name in own if name in job.settings]
    if file is not None and twice:
        raise InputError(f"{twice[0]} is given as a setting and also in {file}: leave out one of them.")
    left = {name: values for name, values in own.items() if name not in job.settings}
    if not left:
        raise InputError(f"all settings of {algorithm} that can be tuned ({', '.join(own)}) are given: leave out at least one.")
    return left


def dashboard_module() -> ModuleType:
    """optuna-dashboard; InputError if it is not installed."""
    try:
        import optuna_dashboard
    except ImportError:
        raise InputError('optuna-dashboard is not installed: pip install "stormpg[dashboard]".') from None
    module: ModuleType = optuna_dashboard
    return module


def show_at(storage: Any) -> None:
    """Serve optuna-dashboard on the loopback interface until this process ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threading.Thread(target=dashboard_module().run_server, args=(storage, "127.0.0.1", port), daemon=True).start()
    address = f"http://127.0.0.1:{port}/"
    out.print(f"Dashboard: {address}", highlight=False)
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def wait_for_reader(dashboard: bool) -> None:
    """Keep the dashboard open until Ctrl-C, if the command runs in a terminal."""
    if dashboard and sys.stdin.isatty():
        out.print("Press Ctrl-C to close the dashboard.", highlight=False)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)


def show(data: Any, folder: Path, as_json: bool) -> None:
    """Print the best trials, the results on fresh seeds, and where the files are."""
    for one in data["tables"]:
        table(one["title"], one["heads"], one["rows"])
        out.print(one["caption"] + ".", highlight=False)
    headings = [protocol["short"] for protocol in data["protocols"].values()]
    for env in data["environments"]:
        table(f"{env['title']}, fresh seeds", ("return at the end", *headings), result_rows(data, env))
    values = ", ".join(f"{name} {value:.5g}" for name, value in data["tuned"]["fresh"].items())
    best = data["tuned"]
    out.print(f"Objective on fresh seeds: {values} (in the search, trial {best['trial']} had {best['value']:.5g}).")
    out.print(f"Wrote {folder / 'best.toml'}: stormpg train --config {folder / 'best.toml'}", highlight=False)
    out.print(f"Open {folder / 'report.html'}; figures and tables.md are in the same folder.", highlight=False)
    finish(as_json, {"folder": str(folder), **data["tuned"]})
