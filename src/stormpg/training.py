"""Training: runs of one shape in blocks, chunk by chunk, until their budget is spent.

Inside JAX a chunk is one compiled program over a block of runs (`compiled`); outside it is one unit of one run (`outside`).
Python returns between chunks, to collect what was recorded, to keep it, and to report progress.
"""

import contextlib
import dataclasses
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.checkpoints import Keeper, Reached, joined
from stormpg.columns import Columns, Table, extend
from stormpg.compiled import Compiled, calls_a_library
from stormpg.envs import AnyEnvironment, OutsideEnvironment
from stormpg.errors import InputError
from stormpg.iteration import LIMIT, Budget, Row, State, begin, unfinished
from stormpg.logs import Logger, send
from stormpg.outside import Outside
from stormpg.parallel import as_here, at_home, block_size, cores, cut, devices, in_blocks, together
from stormpg.records import stack, traceable
from stormpg.result import Progress, Result, Watch
from stormpg.stopping import Halted, Stop, listening

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

    def names(self, block: int, size: int) -> list[str]:
        """What the runs of a block are called in logs."""
        runs = range(block * size, min((block + 1) * size, self.count))
        settings = [f"setting-{r // len(self.seeds)}-" if len(self.algorithms) > 1 else "" for r in runs]
        return [f"{setting}seed-{self.seeds[r % len(self.seeds)]}" for setting, r in zip(settings, runs, strict=True)]

    def block(self) -> int:
        """How many runs are computed together on this machine."""
        if isinstance(self.env, OutsideEnvironment):
            return 1
        where = devices()
        if where[0].platform == "cpu":
            return block_size(self.count, max(cores(), len(where)))
        return -(-self.count // len(where))

    def run(
        self,
        trajectories: int,
        progress: Reporter | None = None,
        keeper: Keeper | None = None,
        block: int | None = None,
        before: Result | None = None,
        logs: Sequence[Logger] = (),
        pause: int | None = None,
        rollout_workers: int | None = None,
        steps: int | None = None,
    ) -> Result:
        """Train until the budget is spent, or `progress` says stop. `before`: continue from the end of that result.

        `pause`: stop at the first unit after this number of trajectories, such that continuing from there changes nothing.
        `rollout_workers`: play the episodes of an environment outside JAX on this number of Ray actors.
        `steps`: no batch begins after this number of environment steps of a run.

        An error, of `progress`, a logger or the environment, and a signal stop all blocks after their chunk. It is raised when
        all have ended, with what was done as its `result`.
        """
        began, stop, lock = time.perf_counter(), Stop(), threading.Lock()
        budget = Budget(trajectories, LIMIT if steps is None else steps)
        blocks = cut(self.runs, block or self.block())
        size = len(blocks[0][2])
        reached = dict(keeper.blocks) if keeper else {}
        if before is not None:
            ends = enumerate(cut(before.states, size))
            reached = {i: Reached(states, ()) for i, states in ends if int(states.iteration.max()) > 0}
        engine: Outside | Compiled
        if isinstance(self.env, OutsideEnvironment):
            engine = Outside(self.env, self.horizon, rollout_workers, self.count, stop)
        else:
            engine = Compiled(self.env, self.horizon, len(blocks))
        where = devices()[: len(blocks)] if isinstance(engine, Compiled) else []
        place = lambda number: where[number % len(where)] if len(where) > 1 else None  # None: as JAX has it

        def so_far() -> Result:
            """What all blocks have reached."""
            now = dict(reached)
            missing = [number for number in range(len(blocks)) if number not in now]
            now |= {number: Reached(begin_all(*blocks[number]), ()) for number in missing}
            ends = [now[number].states for number in range(len(blocks))]
            states = together(at_home(ends) if len(where) > 1 else ends, self.count)
            rows = [list(now[number].rows) for number in range(len(blocks))]
            table: Columns = Table(self.env.name, self.algorithms, self.seeds, rows)
            table = table if before is None else extend(before.columns, table)
            whole = not stop and (pause is None or pause >= trajectories)
            return self.result(trajectories, table, states, time.perf_counter() - began, whole)

        watch = Watch(budget, began, progress, so_far)

        def work(number: int) -> None:
            told = len(reached[number].rows) if number in reached else 0

            def report(states: State, rows: list[Row]) -> bool:
                nonlocal told
                reached[number] = Reached(states, tuple(rows))
                if keeper:
                    keeper.reach(number, states, rows)
                if logs:
                    with lock:
                        send(logs, self.names(number, size), states, joined(rows[told:]))
                    told = len(rows)
                if watch.report(number, states, rows[-1]) is False:
                    stop.request()
                return not stop

            if stop:
                return
            try:
                begun, device = reached.get(number), place(number)
                (policy, algorithm, _), states, rows = start(engine, blocks[number], budget, begun, device)
                reached[number] = Reached(states, tuple(rows))
                for after, new in chunks(engine, policy, algorithm, states, budget, pause or trajectories, device):
                    rows.append(new)
                    if not report(after, rows):
                        break
            except BaseException as error:  # also a second signal: the other blocks end, and what was done is kept
                stop.request(None if isinstance(error, Halted) else error)

        workers, compiling = 1, ThreadPoolExecutor(1)
        try:
            with listening(stop):
                if isinstance(engine, Compiled):
                    program = engine.lowered(*blocks[0], place(0))
                    workers = max(cores(), len(where))
                    if len(blocks) > 1 and calls_a_library(program):  # one block has no other to wait for
                        workers = 1 if where[0].platform == "cpu" else len(where)
                    compiling.submit(as_here(_compile), program)  # while the first batch is prepared
                in_blocks(work, len(blocks), workers)
        except BaseException as error:  # by a handler of the caller's, or a second signal
            stop.request(error)
        finally:
            compiling.shutdown()
            if isinstance(engine, Outside):
                engine.close()
        result = so_far()
        stop.finish(result)
        return result

    def result(self, trajectories: int, table: Columns, states: State, seconds: float = 0.0, complete: bool = True) -> Result:
        """What it has come to."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Result(**mine, trajectories=trajectories, columns=table, states=states, seconds=seconds, complete=complete)


def start(
    engine: Compiled | Outside,
    block: tuple[Any, Algorithm, Any],
    budget: Budget,
    reached: Reached | None,
    device: jax.Device | None,
) -> tuple[tuple[Any, Algorithm, Any], State, list[Row]]:
    """A block of runs where it is computed, its states, and its rows so far, each [iterations, runs].

    `device`: where that is; None: as JAX has it. All that a block is computed from must be there.
    """
    there = jax.device_put(block, device)  # once, not for every chunk
    if reached is not None:
        return there, jax.device_put(reached.states, device), list(reached.rows)
    policy, algorithm, seeds = there
    states, first = engine.start(policy, algorithm, seeds, on_device(budget, device))
    return there, states, [] if first is None else [jax.tree.map(np.asarray, first)]


def chunks(
    engine: Compiled | Outside,
    policy: Any,
    algorithm: Algorithm,
    states: State,
    budget: Budget,
    pause: int,
    device: jax.Device | None,
) -> Iterator[tuple[State, Row]]:
    """States and rows, [iterations, runs], after each chunk until the budget is spent or all runs come to the pause.

    An accelerator computes the next chunk while the rows of one are read.
    """
    limits, until = on_device(budget, device), on_device(pause, device)
    waiting = deque[tuple[State, Future[Row]]]()
    with ThreadPoolExecutor(1) as reader:
        going = True
        while going or waiting:
            sampled, taken = np.asarray(states.trajectories), np.asarray(states.steps)
            going = bool((unfinished(algorithm, sampled, taken, budget) & (sampled < pause)).any())
            if going:
                units, states, recorded = engine.chunk(policy, algorithm, states, limits, until)
                waiting.append((states, reader.submit(_read, units, recorded)))
            if len(waiting) > (1 if going and engine.goes_ahead else 0):
                reached, rows = waiting.popleft()
                yield reached, rows.result()


def on_device(numbers: Any, device: jax.Device | None) -> Any:
    return jax.device_put(jax.tree.map(jnp.asarray, numbers), device)


begin_all = jax.jit(jax.vmap(begin))  # the states of a block before its first batch


def _compile(program: Any) -> None:
    """Whoever needs the program waits for this, or meets the same error."""
    with contextlib.suppress(Exception):
        program.compile()


def _read(units: Any, recorded: Row) -> Row:
    return jax.tree.map(lambda x: np.asarray(x)[: int(units)].reshape(-1, x.shape[-1]), recorded)


def _stack(algorithms: Sequence[Algorithm]) -> Algorithm:
    try:
        return stack(algorithms)
    except ValueError:
        raise InputError(
            "the algorithms given differ in more than their float settings (batch sizes, baseline, optimiser ...); "
            "train each shape by itself."
        ) from None
