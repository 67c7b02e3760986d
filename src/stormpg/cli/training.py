"""Training and what goes with it: train, evaluate."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from stormpg import store
from stormpg.cli.base import Config, Json, Out, app, finish, flag, with_settings
from stormpg.evaluate import evaluate as play
from stormpg.options import Job
from stormpg.store import ITERATES
from stormpg.terminal import out, progress_bar, table
from stormpg.train import train as run_training


@app.command("train")
@with_settings
def train_command(
    env: Annotated[str | None, typer.Argument(help="The environment, see `stormpg list`.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="See `stormpg list`. [storm-pg]")] = None,
    trajectories: Annotated[str | None, flag("trajectories", int, "Budget, large batches included. [4000]")] = None,
    seeds: Annotated[str | None, flag("seeds", int, "How many. [30]")] = None,
    seed: Annotated[str | None, flag("seed", int, "The first one. [0]")] = None,
    horizon: Annotated[str | None, flag("horizon", int, "Steps of an episode; the environment's own by default.")] = None,
    config: Config = None,
    folder: Out = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train many seeds at once. Defaults for a pair of the paper are its Tables 2 and 3."""
    flags = {"env": env, "algorithm": algorithm, "trajectories": trajectories, "seeds": seeds, "seed": seed, "horizon": horizon}
    job = Job(flags | settings, config)
    with progress_bar(f"{job.algorithm.name} on {job.env.name}") as progress:
        result = run_training(
            job.env, job.algorithm, job.trajectories, job.seeds, job.seed, job.horizon, job.policy, folder, progress
        )
    end, summary = result.final_return()[0], store.summary(result)
    headings = ("algorithm", "seeds", "trajectories", "mean", "worst", "best", "diverged", "seconds")
    numbers = [str(len(end)), str(summary["trajectories"]), f"{end.mean():.2f}", f"{end.min():.2f}", f"{end.max():.2f}"]
    row = [job.algorithm.name, *numbers, str(summary["diverged"][0]), f"{result.seconds:.1f}"]
    table(
        job.env.name,
        headings,
        [row],
        "Undiscounted return over the last 50 trajectories: mean of all seeds, worst and best seed.",
    )
    if folder is not None:
        out.print(f"Written to {folder}", highlight=False)
    finish(as_json, summary)


@app.command("evaluate")
def evaluate_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    episodes: Annotated[int, typer.Option(min=1, help="For each seed.")] = 100,
    which: Annotated[str, typer.Option(help=f"The iterate: {', '.join(ITERATES)}.")] = "last",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Take the mode of the policy.")] = False,
    seed: Annotated[int, typer.Option(help="Of the episodes.")] = 0,
    as_json: Json = False,
) -> None:
    """Play fresh episodes with the policies of a run."""
    loaded = store.Run(run)
    means = np.array(
        [
            play(loaded.env, loaded.policies[setting], params, episodes, seed, deterministic, loaded.horizon).returns.mean()
            for setting, _, params in loaded.iterates(which)
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
