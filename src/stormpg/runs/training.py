"""Training: runs of one shape in blocks, chunk by chunk, until their budget is spent.

A loop of `engine` computes the chunks. Python returns between them, to collect what was recorded, to keep it, and to report
progress.
"""

import dataclasses
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.algorithms import Algorithm
from stormpg.engine.compiled_loop import CompiledLoop
from stormpg.engine.iteration import Budget, Row, Setup, State, begin, cost, is_large
from stormpg.engine.python_loop import PythonLoop
from stormpg.envs.base import AnyEnvironment
from stormpg.errors import InputError
from stormpg.machine.blocks import at_home, cut, in_blocks, together
from stormpg.machine.stopping import Halted, Stop, listening
from stormpg.records import stack, traceable
from stormpg.runs.checkpoints import Keeper, Reached, joined
from stormpg.runs.logs import Logger, send
from stormpg.runs.result import Progress, Result, Watch
from stormpg.runs.table import Columns, Table, extend

Reporter = Callable[[Progress], Any]  # returning False stops the training
Loop = CompiledLoop | PythonLoop


def loop_of(env: AnyEnvironment) -> type[CompiledLoop] | type[PythonLoop]:
    """How an environment is run: inside JAX, or outside."""
    return CompiledLoop if env.in_jax else PythonLoop


class RunOptions(NamedTuple):
    """How a training is carried out."""

    progress: Reporter | None = None
    keeper: Keeper | None = None  # of checkpoints
    block: int | None = None  # runs that are computed together; None: as fits this machine
    before: Result | None = None  # continue from the end of that result
    logs: Sequence[Logger] = ()
    pause: int | None = None  # stop at the first unit after these trajectories, such that continuing changes nothing
    rollout_workers: int | None = None  # Ray actors that play the episodes of an environment outside JAX


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

    @property
    def setup(self) -> Setup:
        """What the first run is computed with."""
        return Setup(self.env, self.horizon, traceable(self.policies[0]), self.algorithms[0])

    def names(self, block: int, size: int) -> list[str]:
        """What the runs of a block are called in logs."""
        runs = range(block * size, min((block + 1) * size, self.count))
        settings = [f"setting-{r // len(self.seeds)}-" if len(self.algorithms) > 1 else "" for r in runs]
        return [f"{setting}seed-{self.seeds[r % len(self.seeds)]}" for setting, r in zip(settings, runs, strict=True)]

    def block(self) -> int:
        """How many runs are computed together on this machine."""
        return loop_of(self.env).block(self.count)

    def shapes(self, runs: tuple[Any, Algorithm, Any] | None = None) -> State:
        """The shapes of the states of these runs, or of all."""
        return begin_all.eval_shape(self.env, self.horizon, *(self.runs if runs is None else runs))

    def next_batch(self, before: Result | None = None) -> int:
        """The trajectories that the next iteration of the first run samples; `before`: after that result."""
        if before is None:
            return cost(self.setup, jax.eval_shape(functools.partial(begin, self.setup), self.seeds[0]), large=True)
        state = jax.tree.map(lambda x: x[0], before.states)
        return cost(self.setup, state, bool(is_large(self.setup, state)))

    def run(self, budget: Budget, options: RunOptions | None = None) -> Result:
        """Train until the budget is spent, or `options.progress` says stop.

        An error, of `progress`, a logger or the environment, and a signal stop all blocks after their chunk. It is raised when
        all have ended, with what was done as its `result`.
        """
        return Blocks(self, budget, options or RunOptions()).run()

    def result(self, trajectories: int, table: Columns, states: State, seconds: float = 0.0, complete: bool = True) -> Result:
        """What it has come to."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Result(**mine, trajectories=trajectories, columns=table, states=states, seconds=seconds, complete=complete)


class Blocks:
    """A training under way: what each block of runs has reached."""

    def __init__(self, training: Training, budget: Budget, options: RunOptions) -> None:
        self.training, self.budget, self.options = training, budget, options
        self.began, self.stop, self.lock = time.perf_counter(), Stop(), threading.Lock()
        self.blocks = cut(training.runs, options.block or training.block())
        self.size = len(self.blocks[0][2])
        self.reached = dict(options.keeper.blocks) if options.keeper else {}
        if options.before is not None:
            ends = enumerate(cut(options.before.states, self.size))
            self.reached = {i: Reached(states, ()) for i, states in ends if int(states.iteration.max()) > 0}
        self.told = {number: len(reached.rows) for number, reached in self.reached.items()}  # rows that the logs have
        self.watch = Watch(budget, self.began, options.progress, self.so_far)
        loop: Any = loop_of(training.env)
        self.loop: Loop = loop(
            training.env, training.horizon, len(self.blocks), options.rollout_workers, training.count, self.stop
        )

    def run(self) -> Result:
        try:
            with listening(self.stop):
                in_blocks(self.work, len(self.blocks), self.loop.prepare(self.blocks[0]))
        except BaseException as error:  # by a handler of the caller's, or a second signal
            self.stop.request(error)
        finally:
            self.loop.close()
        result = self.so_far()
        self.stop.finish(result)
        return result

    def work(self, number: int) -> None:
        """Train a block until its budget is spent, or all are to stop."""
        if self.stop:
            return
        try:
            device = self.loop.place(number)
            block, states, rows = start(self.loop, self.blocks[number], self.budget, self.reached.get(number), device)
            self.reached[number] = Reached(states, tuple(rows))
            pause = self.options.pause or self.budget.trajectories
            for after, new in chunks(self.loop, block, states, (self.budget, pause), device):
                rows.append(new)
                self.report(number, after, rows)
                if self.stop:
                    break
        except BaseException as error:  # also a second signal: the other blocks end, and what was done is kept
            self.stop.request(None if isinstance(error, Halted) else error)

    def report(self, number: int, states: State, rows: list[Row]) -> None:
        """A block has got farther: keep that, and tell everyone who wants to know."""
        self.reached[number] = Reached(states, tuple(rows))
        if self.options.keeper:
            self.options.keeper.reach(number, states, rows)
        if self.options.logs:
            with self.lock:
                new = joined(rows[self.told.get(number, 0) :])
                send(self.options.logs, self.training.names(number, self.size), states, new)
            self.told[number] = len(rows)
        if self.watch.report(number, states, rows[-1]) is False:
            self.stop.request()

    def so_far(self) -> Result:
        """What all blocks have reached."""
        training, now = self.training, dict(self.reached)
        for number in range(len(self.blocks)):
            if number not in now:
                now[number] = Reached(begin_all(training.env, training.horizon, *self.blocks[number]), ())
        ends = [now[number].states for number in range(len(self.blocks))]
        states = together(at_home(ends) if len(self.loop.devices) > 1 else ends, training.count)
        rows = [list(now[number].rows) for number in range(len(self.blocks))]
        table: Columns = Table(training.env.name, training.algorithms, training.seeds, rows)
        if self.options.before is not None:
            table = extend(self.options.before.columns, table)
        trajectories, pause = self.budget.trajectories, self.options.pause
        whole = not self.stop and (pause is None or pause >= trajectories)
        return training.result(trajectories, table, states, time.perf_counter() - self.began, whole)


Block = tuple[Any, Algorithm, Any]  # policies, algorithms and seeds of its runs


def start(
    loop: Loop, block: Block, budget: Budget, reached: Reached | None, device: jax.Device | None
) -> tuple[Block, State, list[Row]]:
    """A block of runs where it is computed, its states, and its rows so far, each [iterations, runs].

    `device`: where that is; None: as JAX has it. All that a block is computed from must be there.
    """
    there = jax.device_put(block, device)  # once, not for every chunk
    if reached is not None:
        return there, jax.device_put(reached.states, device), list(reached.rows)
    policy, algorithm, seeds = there
    states, first = loop.start(policy, algorithm, seeds, on_device(budget, device))
    return there, states, [] if first is None else [jax.tree.map(np.asarray, first)]


def chunks(
    loop: Loop, block: Block, states: State, until: tuple[Budget, int], device: jax.Device | None
) -> Iterator[tuple[State, Row]]:
    """States and rows, [iterations, runs], after each chunk until the budget is spent or all runs come to the pause.

    `until`: the budget and the pause. An accelerator computes the next chunk while the rows of one are read.
    """
    policy, algorithm, _ = block
    limits = on_device(until, device)
    waiting = deque[tuple[State, Future[Row | None]]]()
    with ThreadPoolExecutor(1) as reader:
        more: Any = True
        while more or waiting:
            if more:
                units, states, recorded, more = loop.chunk(policy, algorithm, states, *limits)
                waiting.append((states, reader.submit(_read, units, recorded)))
                more = bool(more)
            if len(waiting) > (1 if more and loop.goes_ahead else 0):
                reached, rows = waiting.popleft()
                if (found := rows.result()) is not None:
                    yield reached, found


def on_device(numbers: Any, device: jax.Device | None) -> Any:
    return jax.device_put(jax.tree.map(jnp.asarray, numbers), device)


@functools.partial(jax.jit, static_argnames=("env", "horizon"))
def begin_all(env: AnyEnvironment, horizon: int, policies: Any, algorithms: Algorithm, seeds: Array) -> State:
    """The states of a block of runs before the first batch."""
    one = lambda policy, algorithm, seed: begin(Setup(env, horizon, policy, algorithm), seed)
    return jax.vmap(one)(policies, algorithms, seeds)


def _read(units: Any, recorded: Row) -> Row | None:
    """The rows of a chunk, [iterations, runs]; None where there are none."""
    if not int(units):
        return None
    return jax.tree.map(lambda x: np.asarray(x)[: int(units)].reshape(-1, x.shape[-1]), recorded)


def _stack(algorithms: Sequence[Algorithm]) -> Algorithm:
    try:
        return stack(algorithms)
    except ValueError:
        raise InputError(
            "the algorithms given differ in more than their float settings (batch sizes, baseline, optimiser ...); "
            "train each shape by itself."
        ) from None
