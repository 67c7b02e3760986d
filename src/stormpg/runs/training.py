"""Training: runs of the same shape in blocks, chunk by chunk, until their budget is used up.

A loop of `engine` computes the chunks. Between chunks, control returns to Python to collect and store the recorded rows and to
report progress.
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
from stormpg.engine.budget import Budget
from stormpg.engine.compiled_loop import CompiledLoop
from stormpg.engine.iteration import Setup, State, begin, cost, is_large
from stormpg.engine.metrics import Row
from stormpg.engine.python_loop import PythonLoop
from stormpg.envs.base import AnyEnvironment
from stormpg.errors import InputError
from stormpg.machine.blocks import at_home, cut, in_blocks, together
from stormpg.machine.stopping import Halted, Stop, listening
from stormpg.machine.xla import DEFAULTS, Program
from stormpg.pytrees import first_of, stack, traceable
from stormpg.runs.checkpoints import Keeper, Reached, joined
from stormpg.runs.logs import Logger, send
from stormpg.runs.result import Progress, Result, Watch
from stormpg.runs.table import Columns, Table, extend

Reporter = Callable[[Progress], Any]  # returning False stops the training
Loop = CompiledLoop | PythonLoop


def loop_of(env: AnyEnvironment) -> type[CompiledLoop] | type[PythonLoop]:
    """The loop for an environment: compiled if it runs inside JAX, in Python otherwise."""
    return CompiledLoop if env.in_jax else PythonLoop


class RunOptions(NamedTuple):
    """Options that control how a training is executed."""

    progress: Reporter | None = None
    keeper: Keeper | None = None  # of checkpoints
    block: int | None = None  # number of runs computed together; None: chosen for this machine
    before: Result | None = None  # continue from the end of this result
    logs: Sequence[Logger] = ()
    pause: int | None = None  # stop at the first unit after this number of trajectories; continuing gives the same numbers
    rollout_workers: int | None = None  # number of Ray actors for an environment outside JAX


@dataclasses.dataclass(frozen=True)
class Training:
    """A training job: settings of the same shape, each with every seed. Run r is setting r // seeds with seed r % seeds."""

    env: AnyEnvironment
    algorithms: tuple[Algorithm, ...]
    policies: tuple[Any, ...]
    seeds: tuple[int, ...]
    horizon: int

    @property
    def runs(self) -> tuple[Any, Algorithm, np.ndarray]:
        """Policy, algorithm and seed of every run, with the runs as the leading axis."""
        repeat = functools.partial(jax.tree.map, lambda x: np.repeat(x, len(self.seeds), axis=0))
        return (
            repeat(stack([traceable(p) for p in self.policies])),
            repeat(_stack(self.algorithms)),
            np.tile(np.asarray(self.seeds, np.int32), len(self.algorithms)),
        )

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self.seeds) * len(self.algorithms)

    @property
    def setup(self) -> Setup:
        """The setup of the first run."""
        return Setup(self.env, self.horizon, traceable(self.policies[0]), self.algorithms[0])

    def names(self, block: int, size: int) -> list[str]:
        """The names of the runs of a block in logs."""
        runs = range(block * size, min((block + 1) * size, self.count))
        settings = [f"setting-{r // len(self.seeds)}-" if len(self.algorithms) > 1 else "" for r in runs]
        return [f"{setting}seed-{self.seeds[r % len(self.seeds)]}" for setting, r in zip(settings, runs, strict=True)]

    def block(self) -> int:
        """The number of runs that are computed together on this machine."""
        return loop_of(self.env).block(self.count)

    def shapes(self, runs: tuple[Any, Algorithm, Any] | None = None) -> State:
        """The shapes of the states of these runs, or of all runs if None."""
        states: State = begin_all.eval_shape(self.env, self.horizon, *(self.runs if runs is None else runs))
        return states

    def next_batch(self, before: Result | None = None) -> int:
        """The number of trajectories that the next iteration of the first run samples, after the result `before` if given."""
        if before is None:
            return cost(self.setup, jax.eval_shape(functools.partial(begin, self.setup), self.seeds[0]), large=True)
        state = first_of(before.states)
        return cost(self.setup, state, bool(is_large(self.setup, state)))

    def run(self, budget: Budget, options: RunOptions | None = None) -> Result:
        """Train until the budget is used up, or `options.progress` returns False.

        A signal, or an error in `progress`, a logger or the environment, stops all blocks after their current chunk. The error
        is raised when all blocks have stopped. Its attribute `result` holds the partial result.
        """
        return Blocks(self, budget, options or RunOptions()).run()

    def result(self, trajectories: int, table: Columns, states: State, seconds: float = 0.0, complete: bool = True) -> Result:
        """Build the `Result` of this training."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Result(**mine, trajectories=trajectories, columns=table, states=states, seconds=seconds, complete=complete)


class Blocks:
    """A training in progress, with the progress of each block of runs."""

    def __init__(self, training: Training, budget: Budget, options: RunOptions) -> None:
        self.training, self.budget, self.options = training, budget, options
        self.began, self.stop, self.lock = time.perf_counter(), Stop(), threading.Lock()
        self.blocks = cut(training.runs, options.block or training.block())
        self.size = len(self.blocks[0][2])
        self.reached = dict(options.keeper.blocks) if options.keeper else {}
        if options.before is not None:
            ends = enumerate(cut(options.before.states, self.size))
            self.reached = {i: Reached(states, ()) for i, states in ends if int(states.iteration.max()) > 0}
        self.logged = {number: len(reached.rows) for number, reached in self.reached.items()}  # parts of rows already sent
        self.watch = Watch(budget, self.began, options.progress, lambda: self.so_far(under_way=True))
        loop: Any = loop_of(training.env)
        self.loop: Loop = loop(
            training.env, training.horizon, len(self.blocks), options.rollout_workers, training.count, self.stop
        )

    def run(self) -> Result:
        """Train all blocks. See `Training.run`."""
        try:
            with listening(self.stop):
                in_blocks(self.work, len(self.blocks), self.loop.prepare(self.blocks[0]))
        except BaseException as error:  # from a signal handler of the caller, or a second signal
            self.stop.request(error)
        finally:
            self.loop.close()
        result = self.so_far()
        self.stop.finish(result)
        return result

    def work(self, number: int) -> None:
        """Train a block until its budget is used up or a stop is requested."""
        if self.stop:
            return
        try:
            device = self.loop.place(number)
            block, states, rows = start(self.loop, self.blocks[number], self.budget, self.reached.get(number), device)
            self.reached[number] = Reached(states, tuple(rows))
            if self.options.keeper and rows:
                self.options.keeper.reach(number, states, rows)
            pause = self.budget.trajectories if self.options.pause is None else self.options.pause
            reported = number in self.logged
            for after, new in chunks(self.loop, block, states, (self.budget, pause), device):
                rows.append(new)
                self.report(number, after, rows)
                reported = True
                if self.stop:
                    break
            if rows and not reported:  # the budget held the first batch only
                self.report(number, states, rows)
        except BaseException as error:  # including a second signal: the other blocks stop, and the progress is kept
            self.stop.request(None if isinstance(error, Halted) else error)

    def report(self, number: int, states: State, rows: list[Row]) -> None:
        """Record the progress of a block, and pass it to the checkpoints, the loggers and the progress function."""
        self.reached[number] = Reached(states, tuple(rows))
        if self.options.keeper:
            self.options.keeper.reach(number, states, rows)
        if self.options.logs:
            with self.lock:
                new = joined(rows[self.logged.get(number, 0) :])
                send(self.options.logs, self.training.names(number, self.size), states, new)
            self.logged[number] = len(rows)
        if self.watch.report(number, states, rows[-1]) is False:
            self.stop.request()

    def so_far(self, under_way: bool = False) -> Result:
        """The result of all blocks so far."""
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
        whole = not under_way and not self.stop and (pause is None or pause >= trajectories)
        return training.result(trajectories, table, states, time.perf_counter() - self.began, whole)


Block = tuple[Any, Algorithm, Any]  # policies, algorithms and seeds of its runs


def start(
    loop: Loop, block: Block, budget: Budget, reached: Reached | None, device: jax.Device | None
) -> tuple[Block, State, list[Row]]:
    """Move a block of runs to its device. Returns the block, its states, and its rows so far, each [iterations, runs].

    `device`: None for JAX's default. All inputs of a block must be on the same device.
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
    """Yield states and rows, [iterations, runs], after each chunk until the budget is used up or all runs reach the pause.

    `until`: the budget and the pause. An accelerator computes the next chunk while the rows of the previous one are read.
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
                found = rows.result()
                if more and (found is None or not found.live.any()):
                    raise InputError(
                        "the schedule asks for a batch that is not in its `unit`: list large and small batches there, as "
                        "schedules.Every does."
                    )
                if found is not None:
                    yield reached, found


def on_device(numbers: Any, device: jax.Device | None) -> Any:
    """Convert all leaves to arrays on a device."""
    return jax.device_put(jax.tree.map(jnp.asarray, numbers), device)


@functools.partial(Program, options=DEFAULTS, static_argnames=("env", "horizon"))
def begin_all(env: AnyEnvironment, horizon: int, policies: Any, algorithms: Algorithm, seeds: Array) -> State:
    """The states of a block of runs before the first batch."""

    def begin_one(policy: Any, algorithm: Algorithm, seed: Array) -> State:
        return begin(Setup(env, horizon, policy, algorithm), seed)

    states: State = jax.vmap(begin_one)(policies, algorithms, seeds)
    return states


def _read(units: Any, recorded: Row) -> Row | None:
    """The rows of a chunk, [iterations, runs], or None if there are none."""
    if not int(units):
        return None
    rows: Row = jax.tree.map(lambda x: np.asarray(x)[: int(units)].reshape(-1, x.shape[-1]), recorded)
    return rows


def _stack(algorithms: Sequence[Algorithm]) -> Algorithm:
    try:
        return stack(algorithms)
    except ValueError:
        raise InputError(
            "the algorithms given differ in more than their float settings (batch sizes, baseline, optimiser ...); "
            "train each shape separately."
        ) from None
