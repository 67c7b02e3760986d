"""train(): from what a user gives to a `Result`, and to a folder that can be gone on with."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.checkpoints import Interval, Keeper, Lock, fingerprint, last_good
from stormpg.envs import AnyEnvironment, as_environment
from stormpg.errors import EnvironmentFailure, InputError
from stormpg.iteration import State, begin
from stormpg.logs import Logger
from stormpg.notices import warn_diverged
from stormpg.parallel import cut
from stormpg.policies import check_policy, policy_for
from stormpg.result import Result
from stormpg.training import Reporter, Training


def train(
    env: Any,
    algorithm: Algorithm | str | Sequence[Algorithm] = "storm-pg",
    trajectories: int = 4000,
    seeds: int | Sequence[int] = 30,
    seed: int = 0,
    horizon: int | None = None,
    policy: Any = None,
    out: str | os.PathLike[str] | None = None,
    progress: Reporter | None = None,
    checkpoint: Interval | None = Interval(),  # noqa: B008 - it is a constant
    resume: bool = False,
    logs: Sequence[Logger] = (),
    rollout_workers: int | None = None,
) -> Result:
    """Train every seed with a budget of trajectories, large batches included; a batch that would not fit is not sampled.

    env              a name, an environment, or a Gymnasium environment, vector environment or factory
    algorithm        one, its name, or a list that differs in float settings only: these run as one batch beside the seeds
    seeds, seed      that many seeds from `seed` on; or the seeds themselves
    horizon          H; the environment's own by default
    policy           `policy_for(env)` by default; or a list, one for each algorithm
    out              a folder to write the run to
    progress         called after each chunk with a `Progress`; returning False stops
    checkpoint       how often the whole state is written to `out` on the way; None: never
    resume           go on with the run that was begun in `out` with the same arguments
    logs             loggers that are sent every iteration, see `logs`
    rollout_workers  play the episodes of an environment outside JAX on so many Ray actors; the result is the same for any
                     number of them, and that of None, which plays them in this process, to rounding
    """
    env = as_environment(env)
    algorithms: list[Any] = (
        list(algorithm) if isinstance(algorithm, Sequence) and not isinstance(algorithm, str) else [algorithm]
    )
    algorithms = [_algorithm(a) for a in algorithms]
    policies: list[Any] = [
        policy_for(env) if p is None else p for p in (policy if isinstance(policy, list) else [policy] * len(algorithms))
    ]
    numbers = list(range(seed, seed + _whole("seeds", seeds))) if isinstance(seeds, int) else [int(s) for s in seeds]
    training = check_training(env, algorithms, policies, numbers, horizon)
    check_budget(algorithms[0], trajectories)
    if rollout_workers is not None:
        check_workers(training, rollout_workers)
    if out is None:
        return warn_diverged(training.run(trajectories, progress, logs=logs, rollout_workers=rollout_workers))
    return warn_diverged(run_in_folder(training, trajectories, Path(out), progress, checkpoint, resume, logs, rollout_workers))


def run_in_folder(
    training: Training,
    trajectories: int,
    folder: Path,
    progress: Reporter | None,
    checkpoint: Interval | None,
    resume: bool,
    logs: Sequence[Logger],
    rollout_workers: int | None = None,
) -> Result:
    """Train with a folder to keep it in. A run that is stopped or fails leaves a checkpoint."""
    from stormpg import store

    if resume:
        config = store.read_config(folder)
        block = config.get("block") or training.block()
        _same_run(config, store.describe(training, trajectories, block), folder)
    else:
        block = training.block()
        config = store.describe(training, trajectories, block)
        store.begin(config, folder)
    with Lock(folder):
        mark, begun = fingerprint(config), {}
        if resume:
            if store.is_whole(folder):
                raise InputError(f"the run in {folder} is finished: there is nothing to go on with.")
            blocks = cut(training.runs, block)
            begun = last_good(folder, mark, lambda i: _shapes(blocks[i]))
        keeper = Keeper(folder, mark, checkpoint or Interval(None, None), begun)
        try:
            result = training.run(trajectories, progress, keeper, block, logs=logs, rollout_workers=rollout_workers)
        except EnvironmentFailure as error:
            keeper.write()
            raise EnvironmentFailure(f"{error} The state before it is saved: resume the run in {folder}.") from error
        if result.complete:
            store.save(result, folder)
            keeper.finish()
        else:
            keeper.write()
    return result


def _shapes(block: tuple[Any, Algorithm, Any]) -> State:
    """The shapes of a block's states."""
    return jax.eval_shape(jax.vmap(begin), *block)


def _same_run(config: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    for name, value in wanted.items():
        if name not in ("versions", "device") and config.get(name) != value:
            raise InputError(
                f"{folder} holds a run with {name} = {str(config.get(name))[:80]}; asked for {str(value)[:80]}. "
                "Resume it as it was begun, or give another folder."
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
    """What is trained, if it can be; InputError otherwise."""
    length = _whole("horizon", env.horizon if horizon is None else horizon)
    if not algorithms or not seeds:
        raise InputError("no algorithm or no seed was given; expected at least one of each.")
    if len(policies) != len(algorithms):
        raise InputError(f"{len(policies)} policies were given for {len(algorithms)} algorithms; expected one for each.")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"the seeds are {seeds}; expected different numbers of at least 0.")
    for policy in policies:
        check_policy(env, policy)
    return Training(env, tuple(_algorithm(a) for a in algorithms), tuple(policies), tuple(seeds), length)


def check_workers(training: Training, workers: int) -> None:
    """InputError where the rollouts cannot be played on actors."""
    from stormpg.distant import pickled, sendable

    _whole("rollout_workers", workers)
    sendable(training.env)
    for policy in training.policies:
        pickled("the policy", policy)


def check_budget(algorithm: Algorithm, trajectories: int) -> None:
    """InputError where a budget does not hold the first batch."""
    S0 = algorithm.schedule.S0
    if _whole("trajectories", trajectories) < S0:
        raise InputError(
            f"the budget is {trajectories} trajectories and the first batch takes S0 = {S0}: raise it, or lower S0."
        )


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r}; expected a whole number of at least 1.")
    return value
