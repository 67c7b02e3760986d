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
from stormpg.iteration import Row, State, unfinished
from stormpg.logs import Logger, send
from stormpg.outside import Outside
from stormpg.parallel import as_here, at_home, block_size, cores, cut, devices, in_blocks, together
from stormpg.records import stack, traceable
from stormpg.result import Progress, Result, Watch

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
    ) -> Result:
        """Train until the budget is spent, or `progress` says stop. `before`: go on from the end of that result.

        `pause`: stop at the first unit after so many trajectories, such that going on from there changes nothing.
        `rollout_workers`: play the episodes of an environment outside JAX on so many Ray actors.
        """
        began, stop, lock = time.perf_counter(), threading.Event(), threading.Lock()
        watch = Watch(trajectories, began, progress, stop)
        blocks = cut(self.runs, block or self.block())
        reached = dict(keeper.blocks) if keeper else {}
        if before is not None:
            reached = {i: Reached(states, ()) for i, states in enumerate(cut(before.states, len(blocks[0][2])))}
        engine: Outside | Compiled
        if isinstance(self.env, OutsideEnvironment):
            engine = Outside(self.env, self.horizon, rollout_workers, self.count)
        else:
            engine = Compiled(self.env, self.horizon, len(blocks))
        where = devices()[: len(blocks)] if isinstance(engine, Compiled) else []
        place = lambda number: where[number % len(where)] if len(where) > 1 else None  # None: as JAX has it

        def work(number: int) -> tuple[State, list[Row]]:
            told = len(reached[number].rows) if number in reached else 0

            def report(states: State, rows: list[Row]) -> bool:
                nonlocal told
                if keeper:
                    keeper.reach(number, states, rows)
                if logs:
                    with lock:
                        send(logs, self.names(number, len(blocks[0][2])), states, joined(rows[told:]))
                    told = len(rows)
                watch.report(number, states, rows[-1])
                return not stop.is_set()

            until = pause or trajectories
            return run(engine, blocks[number], trajectories, reached.get(number), report, until, place(number))

        workers, compiling = 1, ThreadPoolExecutor(1)
        if isinstance(engine, Compiled):
            program = engine.lowered(*blocks[0], place(0))
            workers = max(cores(), len(where))
            if len(blocks) > 1 and calls_a_library(program):  # one block has no other to wait for
                workers = 1 if where[0].platform == "cpu" else len(where)
            compiling.submit(as_here(_compile), program)  # while the first batch is prepared
        try:
            done = in_blocks(work, len(blocks), workers)
        finally:
            compiling.shutdown()
            if isinstance(engine, Outside):
                engine.close()
        ends = [states for states, _ in done]
        states = together(at_home(ends) if len(where) > 1 else ends, self.count)
        table: Columns = Table(self.env.name, self.algorithms, self.seeds, [rows for _, rows in done])
        table = table if before is None else extend(before.columns, table)
        whole = not stop.is_set() and (pause is None or pause >= trajectories)
        return self.result(trajectories, table, states, time.perf_counter() - began, whole)

    def result(self, trajectories: int, table: Columns, states: State, seconds: float = 0.0, complete: bool = True) -> Result:
        """What it has come to."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Result(**mine, trajectories=trajectories, columns=table, states=states, seconds=seconds, complete=complete)


def run(
    engine: Compiled | Outside,
    block: tuple[Any, Algorithm, Any],
    trajectories: int,
    reached: Reached | None,
    report: Callable[[State, list[Row]], bool],
    pause: int,
    device: jax.Device | None = None,
) -> tuple[State, list[Row]]:
    """A block of runs until its budget is spent or `report` says no: its states, and its rows, each [iterations, runs].

    `device`: where it is computed; all that it is computed from must be there.
    """
    policy, algorithm, seeds = jax.device_put(block, device)  # once, not for every chunk
    budget = jax.device_put(jnp.asarray(trajectories), device)
    if reached is not None:
        states, collected = jax.device_put(reached.states, device), list(reached.rows)
    else:
        states, first = engine.start(policy, algorithm, seeds, budget)
        collected = [] if first is None else [jax.tree.map(np.asarray, first)]
    for reached_states, rows in chunks(engine, policy, algorithm, states, trajectories, pause, device):
        states = reached_states
        collected.append(rows)
        if not report(states, collected):
            break
    return states, collected


def chunks(
    engine: Compiled | Outside,
    policy: Any,
    algorithm: Algorithm,
    states: State,
    trajectories: int,
    pause: int,
    device: jax.Device | None,
) -> Iterator[tuple[State, Row]]:
    """States and rows, [iterations, runs], after each chunk until the budget is spent or all runs come to the pause.

    An accelerator computes the next chunk while the rows of one are read.
    """
    budget, until = jax.device_put((jnp.asarray(trajectories), jnp.asarray(pause)), device)
    waiting = deque[tuple[State, Future[Row]]]()
    with ThreadPoolExecutor(1) as reader:
        going = True
        while going or waiting:
            sampled = np.asarray(states.trajectories)
            going = bool((unfinished(algorithm, sampled, trajectories) & (sampled < pause)).any())
            if going:
                units, states, recorded = engine.chunk(policy, algorithm, states, budget, until)
                waiting.append((states, reader.submit(_read, units, recorded)))
            if len(waiting) > (1 if going and engine.goes_ahead else 0):
                reached, rows = waiting.popleft()
                yield reached, rows.result()


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
