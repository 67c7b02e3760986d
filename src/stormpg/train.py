"""train(): many runs, in blocks, chunk by chunk, until their budget is spent.

Inside JAX a chunk is one compiled program over a block of runs (`compiled`); outside it is one unit of one run (`outside`).
Python returns between chunks, to collect what was recorded, to keep it, and to report progress.
"""

import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.checkpoints import Interval, Keeper, Lock, Reached, fingerprint, joined, last_good
from stormpg.compiled import Compiled, calls_a_library
from stormpg.envs import AnyEnvironment, OutsideEnvironment, as_environment
from stormpg.errors import EnvironmentFailure, InputError
from stormpg.iteration import Row, State, begin, unfinished
from stormpg.outside import Outside
from stormpg.parallel import block_size, cores, cut, in_blocks
from stormpg.policies import check_policy, policy_for
from stormpg.records import stack, traceable
from stormpg.result import Progress, Result, Watch, columns, extend

Reporter = Callable[[Progress], Any]  # returning False stops the training


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained: settings of one shape, each with every seed. Run r is setting r // seeds with seed r % seeds."""

    env: AnyEnvironment
    algorithms: tuple[Algorithm, ...]
    policies: tuple[Any, ...]
    seeds: tuple[int, ...]
    horizon: int

    @property
    def runs(self) -> tuple[Any, Algorithm, np.ndarray]:
        """Policy, algorithm and seed of every run, with the runs as first axis."""
        repeat = functools.partial(jax.tree.map, lambda x: np.repeat(x, len(self.seeds), axis=0))
        return (
            repeat(stack([traceable(p) for p in self.policies])),
            repeat(_stack(self.algorithms)),
            np.tile(np.asarray(self.seeds, np.int32), len(self.algorithms)),
        )

    @property
    def count(self) -> int:
        return len(self.seeds) * len(self.algorithms)

    def block(self) -> int:
        """How many runs are computed together on this machine."""
        if isinstance(self.env, OutsideEnvironment):
            return 1
        return block_size(self.count, cores()) if jax.default_backend() == "cpu" else self.count

    def run(
        self,
        trajectories: int,
        progress: Reporter | None = None,
        keeper: Keeper | None = None,
        block: int | None = None,
        before: Result | None = None,
    ) -> Result:
        """Train until the budget is spent, or `progress` says stop. `before`: go on from the end of that result."""
        began, stop = time.perf_counter(), threading.Event()
        watch = Watch(trajectories, began, progress, stop)
        blocks = cut(self.runs, block or self.block())
        reached = dict(keeper.blocks) if keeper else {}
        if before is not None:
            reached = {i: Reached(states, ()) for i, states in enumerate(cut(before.states, len(blocks[0][2])))}
        engine = (Outside if isinstance(self.env, OutsideEnvironment) else Compiled)(self.env, self.horizon)  # type: ignore[arg-type]

        def work(number: int) -> tuple[State, Row]:
            def report(states: State, rows: list[Row]) -> bool:
                if keeper:
                    keeper.reach(number, states, rows)
                watch.report(number, states, rows[-1])
                return not stop.is_set()

            return run(engine, blocks[number], trajectories, reached.get(number), report)

        # Asked with the shapes of a block, so that what is traced for it is not traced again.
        alone = len(blocks) == 1 or isinstance(engine, Outside) or calls_a_library(engine, *blocks[0])
        try:
            states, rows = in_blocks(work, len(blocks), self.count, workers=1 if alone else cores())
        finally:
            if isinstance(engine, Outside):
                engine.close()
        table = columns(self.env.name, self.algorithms, self.seeds, rows)
        return Result(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            trajectories=trajectories,
            columns=table if before is None else extend(before.columns, table),
            states=states,
            seconds=time.perf_counter() - began,
            complete=not stop.is_set(),
        )


def run(
    engine: Compiled | Outside,
    block: tuple[Any, Algorithm, Any],
    trajectories: int,
    reached: Reached | None,
    report: Callable[[State, list[Row]], bool],
) -> tuple[State, Row]:
    """A block of runs until its budget is spent or `report` says no: its states, and its rows, [iterations, runs]."""
    policy, algorithm, seeds = block
    budget = jnp.asarray(trajectories)
    if reached is not None:
        states, collected = reached.states, list(reached.rows)
    else:
        states, first = engine.start(policy, algorithm, seeds, budget)
        collected = [] if first is None else [jax.tree.map(np.asarray, first)]
    going = True
    while going and bool(unfinished(algorithm, states, budget).any()):
        units, states, recorded = engine.chunk(policy, algorithm, states, budget)
        collected.append(jax.tree.map(lambda x, count=int(units): np.asarray(x)[:count].reshape(-1, x.shape[-1]), recorded))
        going = report(states, collected)
    return states, joined(collected)


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
) -> Result:
    """Train every seed with a budget of trajectories, large batches included; a batch that would not fit is not sampled.

    env           a name, an environment, or a Gymnasium environment, vector environment or factory
    algorithm     one, its name, or a list that differs in float settings only: these run as one batch beside the seeds
    seeds, seed   that many seeds from `seed` on; or the seeds themselves
    horizon       H; the environment's own by default
    policy        `policy_for(env)` by default; or a list, one for each algorithm
    out           a folder to write the run to
    progress      called after each chunk with a `Progress`; returning False stops
    checkpoint    how often the whole state is written to `out` on the way; None: never
    resume        go on with the run that was begun in `out` with the same arguments
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
    if out is None:
        return training.run(trajectories, progress)
    return run_in_folder(training, trajectories, Path(out), progress, checkpoint, resume)


def run_in_folder(
    training: Training, trajectories: int, folder: Path, progress: Reporter | None, checkpoint: Interval | None, resume: bool
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
            result = training.run(trajectories, progress, keeper, block)
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


def _stack(algorithms: Sequence[Algorithm]) -> Algorithm:
    try:
        return stack(algorithms)
    except ValueError:
        raise InputError(
            "the algorithms given differ in more than their float settings (batch sizes, baseline, optimiser ...); "
            "train each shape by itself."
        ) from None


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
