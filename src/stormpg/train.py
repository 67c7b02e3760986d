"""train(), load() and resume(): from what a user gives to a `Result`, and to a folder that can be resumed."""

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from stormpg.algorithms import DEFAULT, Algorithm, make_algorithm
from stormpg.engine.budget import LIMIT, TRAJECTORIES, Budget
from stormpg.envs import AnyEnvironment, as_environment
from stormpg.errors import InputError, tell, warn_diverged
from stormpg.files import FORMAT, as_json
from stormpg.machine.blocks import cut
from stormpg.machine.stopping import add_note
from stormpg.policies.constructors import check_policy, policy_of_algorithm
from stormpg.runs import run_folder
from stormpg.runs.checkpoints import CheckpointInterval, Keeper, fingerprint, last_good, owned
from stormpg.runs.config import MOST_STEPS
from stormpg.runs.identity import describe, difference
from stormpg.runs.logs import Logger
from stormpg.runs.result import Result
from stormpg.runs.training import Blocks, Reporter, RunOptions, Training


def train(
    env: Any,
    algorithm: Algorithm | str | Sequence[Algorithm] = DEFAULT,
    trajectories: int | None = None,
    seeds: int | Sequence[int] = 30,
    seed: int = 0,
    horizon: int | None = None,
    policy: Any = None,
    out: str | os.PathLike[str] | None = None,
    progress: Reporter | None = None,
    checkpoint: CheckpointInterval | None = CheckpointInterval(),  # noqa: B008 - it is a constant
    resume: bool = False,
    logs: Sequence[Logger] = (),
    rollout_workers: int | None = None,
    steps: int | None = None,
) -> Result:
    """Train every seed with a budget of trajectories, including large batches. A batch that does not fit is not sampled.

    env              a name, an environment, or a Gymnasium environment, vector environment or factory
    algorithm        an algorithm, its name, or a list of algorithms that differ in float settings only, which run as one batch
    trajectories     the budget of each seed; 4000 unless `steps` is given
    seeds, seed      the number of seeds, starting at `seed`; or a list of seeds
    horizon          H; the horizon of the environment by default
    policy           by default `policy_for(env)` with the settings that the algorithm recommends; or a list with one policy for
                     each algorithm
    out              a folder for the run
    progress         called after each chunk with a `Progress`; return False to stop
    checkpoint       how often the whole state is written to `out`; None: never
    resume           resume the run in `out`, which was started with the same arguments; a finished run is returned
    logs             loggers that receive every iteration, see `runs.logs`
    rollout_workers  play the episodes of an environment outside JAX on this number of Ray actors. The result does not depend on
                     the number, and equals that of None (play in this process) up to rounding
    steps            a budget of environment steps for each seed: no batch starts after it is used up

    Ctrl-C, SIGTERM, and an error in `progress`, a logger or the environment stop all seeds after their current chunk. The work
    done so far is kept: as a checkpoint in `out`, and as `result` of the raised exception.
    """
    env = as_environment(env)
    algorithms: list[Any] = (
        list(algorithm) if isinstance(algorithm, Sequence) and not isinstance(algorithm, str) else [algorithm]
    )
    algorithms = [_algorithm(a) for a in algorithms]
    given = policy if isinstance(policy, list) else [policy] * len(algorithms)
    policies = [policy_of_algorithm(env, a.policy.content) if p is None else p for p, a in zip(given, algorithms, strict=False)]
    counted = isinstance(seeds, int | np.integer)
    numbers = list(range(whole("seed", seed, 0), seed + whole("seeds", seeds))) if counted else list(seeds)  # type: ignore[arg-type]
    training = check_training(env, algorithms, policies, numbers, horizon)
    budget = budget_of(trajectories, steps)
    check_budget(training.next_batch(), budget.trajectories)
    if rollout_workers is not None:
        check_workers(training, rollout_workers)
    options = RunOptions(progress, logs=logs, rollout_workers=rollout_workers)
    if out is None:
        return warn_diverged(training.run(budget, options))
    return warn_diverged(run_in_folder(training, budget, options, Path(out), checkpoint, resume))


def budget_of(trajectories: int | None, steps: int | None) -> Budget:
    """The default is 4000 trajectories; if only steps are given, trajectories are not limited."""
    trajectories = (TRAJECTORIES if steps is None else LIMIT) if trajectories is None else trajectories
    return Budget(whole("trajectories", trajectories), LIMIT if steps is None else whole("steps", steps))


def run_in_folder(
    training: Training, budget: Budget, options: RunOptions, folder: Path, checkpoint: CheckpointInterval | None, resume: bool
) -> Result:
    """Train and write the run to a folder. A run that stops or fails leaves a checkpoint."""
    steps = None if budget.steps == LIMIT else budget.steps
    config = run_folder.read_config(folder) if resume else None
    if config is None:
        run_folder.prepare(folder)
    with owned(folder):
        if config is None:
            block = training.block()
            config = run_folder.describe(training, budget.trajectories, block, steps)
            run_folder.begin(config, folder)
        else:
            block = config.get("block") or training.block()
            _same_run(config, run_folder.describe(training, budget.trajectories, block, steps), folder)
        if run_folder.is_whole(folder):
            return cast(Result, run_folder.finished(training, folder))
        blocks, mark = cut(training.runs, block), fingerprint(config)
        begun = last_good(folder, mark, lambda i: training.shapes(blocks[i])) if resume else {}
        keeper = Keeper(folder, mark, checkpoint or CheckpointInterval(None, None), begun)
        try:
            result = training.run(budget, options._replace(keeper=keeper, block=block))
            if result.complete:
                run_folder.save(result, folder)
                keeper.finish()
            else:
                keeper.write()
        except BaseException as error:
            with contextlib.suppress(InputError):  # a full disk, which `error` may be about too
                keeper.write()
            add_note(error, f"Resume: stormpg train --resume {shlex.quote(str(folder))}")
            raise
    return result


def _same_run(config: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    """Raise InputError that names the difference if the folder holds another run."""
    ignored = {"format", "versions", "device"}
    if config["format"] < FORMAT:
        tell(f"{folder} is of an older version, which described a run in another way: only its settings are compared.")
        ignored |= {"identity"} if "identity" in config else {"identity", "steps"}
    held, asked = (
        describe({k: v for k, v in one.items() if k not in ignored}) for one in (run_folder.completed(config), as_json(wanted))
    )
    if found := difference(held, asked):
        path, before, now = found
        raise InputError(
            f"{folder} holds a run with {path} = {str(before)[:80]}; asked for {str(now)[:80]}. "
            "Resume it as it was started, or give another folder."
        )


def _algorithm(thing: Any) -> Algorithm:
    if isinstance(thing, str):
        return make_algorithm(thing)
    if not isinstance(thing, Algorithm):
        raise InputError(
            f"{type(thing).__name__} is not an algorithm: give its name, a constructor's result such as storm_pg(), or "
            'make_algorithm("gpomdp", eta=0.005) for those that share their name with an estimator.'
        )
    return thing


def check_training(
    env: AnyEnvironment, algorithms: list[Algorithm], policies: list[Any], seeds: list[int], horizon: int | None
) -> Training:
    """The `Training` of these arguments. Raise InputError if they cannot be trained."""
    length = whole("horizon", env.horizon if horizon is None else horizon, most=MOST_STEPS)
    if not algorithms or not seeds:
        raise InputError("no algorithm or no seed was given; expected at least one of each.")
    if len(policies) != len(algorithms):
        raise InputError(f"{len(policies)} policies were given for {len(algorithms)} algorithms; expected one for each.")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"the seeds are {str(seeds)[:80]}; expected different ones.")
    for seed in seeds:
        whole("seed", seed, 0)
    for policy in policies:
        check_policy(env, policy)
    return Training(env, tuple(_algorithm(a) for a in algorithms), tuple(policies), tuple(seeds), length)


def check_workers(training: Training, workers: int) -> None:
    """Raise InputError if the episodes cannot be played on Ray actors."""
    from stormpg.sampling.ray_actors import pickled, sendable

    whole("rollout_workers", workers)
    sendable(training.env)
    for policy in training.policies:
        pickled("the policy", policy)


def check_budget(first: int, trajectories: int) -> None:
    """Raise InputError if the budget is smaller than the first batch."""
    if whole("trajectories", trajectories) < first:
        raise InputError(
            f"the budget is {trajectories} trajectories and the first batch takes S0 = {first}: raise it, or lower S0."
        )


def whole(name: str, value: Any, least: int = 1, most: int = LIMIT) -> int:
    """Return a whole number, Python's or NumPy's, from `least` to `most`. Raise InputError otherwise."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f"{name} is {value!r}; expected a whole number from {least} to {most}.")
    return int(value)


def load(folder: str | os.PathLike[str], env: Any = None, policy: Any = None, algorithm: Algorithm | None = None) -> Result:
    """Load the result of a run from its folder. For an unfinished run it is the state of the last checkpoint.

    env, policy, algorithm   needed if they are your own, because the folder cannot recreate them
    """
    path = Path(folder)
    run = run_folder.Run(path, env, policy, algorithm)
    training = check_training(run.env, run.algorithms(), run.policies, run.seeds, run.horizon)
    if run_folder.is_whole(path):
        return cast(Result, run_folder.finished(training, path))
    block, budget = run.config.get("block") or training.block(), budget_of(run.config["trajectories"], run.config.get("steps"))
    blocks = cut(training.runs, block)
    begun = last_good(path, fingerprint(run.config), lambda i: training.shapes(blocks[i]))
    under_way = Blocks(training, budget, RunOptions(block=block))
    under_way.reached = begun
    return under_way.so_far(under_way=True)


def resume(folder: str | os.PathLike[str], env: Any = None, policy: Any = None, algorithm: Algorithm | None = None) -> Result:
    """Resume and finish the run in a folder, bit for bit as if it had not stopped. A finished run is returned.

    env, policy, algorithm   needed if they are your own, because the folder cannot recreate them
    """
    arguments = run_folder.Run(folder, env, policy, algorithm).arguments()
    return train(**arguments, out=folder, resume=True)
