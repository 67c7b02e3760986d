"""The commands train and evaluate."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from stormpg.cli.base import (
    AlgorithmName,
    Config,
    Env,
    Horizon,
    Json,
    Out,
    command,
    file_option,
    finish,
    flag,
    with_settings,
)
from stormpg.cli.help import BUDGET, OUTSIDE, SAFETY, TRAINING
from stormpg.engine.budget import TRAJECTORIES
from stormpg.errors import InputError
from stormpg.evaluate import evaluate as play
from stormpg.report.terminal import out, progress_bar, table
from stormpg.runs import run_folder
from stormpg.runs.checkpoints import SECONDS, CheckpointInterval
from stormpg.runs.logs import LOGGERS, open_logs
from stormpg.runs.options import DEFAULTS, Job, from_flag
from stormpg.runs.result import Result
from stormpg.runs.run_folder import ITERATES
from stormpg.runs.table import WINDOW
from stormpg.train import train as run_training

Seconds = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="NUMBER",
        help=rf"Longest time between two checkpoints, in seconds. \[default: {SECONDS:g}]",
        show_default=False,
        rich_help_panel=SAFETY,
    ),
]
Iterations = Annotated[
    int | None,
    typer.Option(min=1, metavar="INTEGER", help="Most iterations between two checkpoints.", rich_help_panel=SAFETY),
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="NAME", help=f"{', '.join(LOGGERS)}; may be given several times.", rich_help_panel=SAFETY),
]


@command("train", TRAINING)
@with_settings
def train_command(
    env: Env = None,
    algorithm: AlgorithmName = None,
    trajectories: Annotated[
        str | None,
        flag("trajectories", int, "Budget of each seed, large batches included.", BUDGET, TRAJECTORIES),
    ] = None,
    steps: Annotated[str | None, flag("steps", int, "Budget of each seed in environment steps.", BUDGET)] = None,
    seeds: Annotated[str | None, flag("seeds", int, "Number of seeds.", BUDGET, DEFAULTS["seeds"])] = None,
    seed: Annotated[str | None, flag("seed", int, "The first seed.", BUDGET, DEFAULTS["seed"])] = None,
    horizon: Horizon = None,
    async_envs: Annotated[bool | None, flag("async_envs", bool, "gym: a process for each environment.", OUTSIDE)] = None,
    env_timeout: Annotated[str | None, flag("env_timeout", float, "gym: maximum seconds of a step.", OUTSIDE)] = None,
    rollout_workers: Annotated[
        str | None, flag("rollout_workers", int, "gym: number of Ray actors that play episodes.", OUTSIDE)
    ] = None,
    config: Config = None,
    folder: Out = None,
    resume: Annotated[Path | None, file_option("--resume", "Resume the run in this folder.")] = None,
    checkpoint_seconds: Seconds = SECONDS,
    checkpoint_iterations: Iterations = None,
    log: Logs = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train one or many seeds at once, and show their returns.

    Settings left out have the defaults of the algorithm, as in Python; on the paper's tasks those of its Tables 2 and 3.
    """
    flags: dict[str, Any] = {
        **{"env": env, "algorithm": algorithm, "trajectories": trajectories, "seeds": seeds, "seed": seed, "horizon": horizon},
        **{"async_envs": async_envs, "env_timeout": env_timeout, "steps": steps},
        **settings,
    }
    # The number of workers does not change the result, so a run may be resumed with another number.
    workers = None if rollout_workers is None else from_flag("rollout_workers", rollout_workers, int)
    if resume is not None:
        given = [f"--{name.replace('_', '-')}" for name, value in {**flags, "out": folder}.items() if value is not None]
        if given:
            raise InputError(f"--resume continues a run as it was started: leave out {', '.join(given)}.")
        arguments = run_folder.Run(resume).arguments()
        finished = run_folder.is_whole(resume)
        out.print(FINISHED if finished else resuming(arguments["env"]), highlight=False)
    else:
        job = Job(flags, config)
        arguments = job.arguments()
    folder = folder if resume is None else resume
    label = f"{arguments['algorithm'][0].name} on {arguments['env'].name}"
    with open_logs(log or (), folder) as logs, progress_bar(label) as show:
        result = run_training(
            **arguments,
            out=folder,
            progress=show,
            checkpoint=CheckpointInterval(checkpoint_seconds, checkpoint_iterations),
            resume=resume is not None,
            logs=logs,
            rollout_workers=workers,
        )
    if resume is None:
        out.print(job.words(), highlight=False)
    show_result(result, folder)
    finish(as_json, run_folder.summary(result))


FINISHED = "This run is finished: there is nothing left to do."


def resuming(env: Any) -> str:
    """The message on resuming a run: what is restored."""
    if not env.in_jax:
        return (
            "Resuming. Every episode starts with a reset to its own seed. Any other state that the environment keeps between "
            "episodes is not restored."
        )
    return "Resuming. The result will be bit for bit that of an uninterrupted run."


def show_result(result: Result, folder: Path | None) -> None:
    """Print the final returns of a run, over all seeds."""
    end, summary = result.final_return()[0], run_folder.summary(result)
    headings = ("seeds", "trajectories", "mean", "worst", "best", "diverged", "seconds")
    row = [str(len(end)), str(summary["trajectories"]), f"{end.mean():.2f}", f"{end.min():.2f}", f"{end.max():.2f}"]
    row += [str(summary["diverged"][0]), f"{result.seconds:.1f}"]
    table(
        f"{result.algorithms[0].name} on {result.env.name}",
        headings,
        [row],
        f"Undiscounted return over the last {WINDOW} trajectories: mean over all seeds, worst and best seed.",
    )
    if folder is not None:
        out.print(f"Written to {folder}", highlight=False)


@command("evaluate", TRAINING)
def evaluate_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes for each policy.")] = 100,
    which: Annotated[str, typer.Option(help=f"The iterate: {', '.join(ITERATES)}.")] = "last",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Take the mode of the policy instead of sampling.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the episodes; every policy of the run gets its own episodes.")] = 0,
    as_json: Json = False,
) -> None:
    """Evaluate the policies of a run on new episodes."""
    loaded = run_folder.Run(run)
    means = np.array(
        [
            play(
                loaded.env, loaded.policies[setting], params, episodes, seed, deterministic, loaded.horizon, (setting, own)
            ).returns.mean()
            for setting, own, params in loaded.iterates(which)
        ]
    )
    row = [
        loaded.config["algorithm"],
        str(len(means)),
        str(episodes),
        f"{means.mean():.2f}",
        f"{means.min():.2f}",
        f"{means.max():.2f}",
    ]
    table(
        f"{loaded.env.name}, {which} iterate, {'mode' if deterministic else 'sampled'} actions",
        ("algorithm", "seeds", "episodes each", "mean return", "worst seed", "best seed"),
        [row],
    )
    finish(as_json, {"env": loaded.env.name, "which": which, "episodes": episodes, "return_by_seed": [float(m) for m in means]})
