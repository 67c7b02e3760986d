"""The Python loop, for environments outside JAX: episodes are played in slots. All else is shared with the compiled loop."""

import functools
import time
from typing import Any

import jax
import numpy as np
from jax import Array

from stormpg.algorithms import Algorithm
from stormpg.engine.budget import Budget
from stormpg.engine.compiled_loop import Chunk
from stormpg.engine.iteration import Setup, State, Wanted, as_batch, begin, due, learn, unfinished, wanted, wanted_sizes
from stormpg.engine.metrics import Row
from stormpg.envs.base import OutsideEnvironment
from stormpg.errors import Forecast
from stormpg.machine.stopping import Stop
from stormpg.machine.xla import DEFAULTS, Program
from stormpg.pytrees import as_block, first_of
from stormpg.sampling.episodes import Sampler, with_log_probs
from stormpg.sampling.ray_actors import RaySampler
from stormpg.schedules import Pattern
from stormpg.trajectories import Trajectories

# These programs do not know the environment: every environment is a new object, and runs with the same shapes share them.
# They take the only run out of its block and return a block: with a call of its own for this, an iteration takes longer.
NOWHERE, ANY = None, 0  # the environment and horizon of their `Setup`


@functools.partial(Program, options=DEFAULTS, static_argnames=("large",))
def ask(policies: Any, algorithms: Algorithm, states: State, large: bool, budget: Budget) -> tuple[Array, list[Wanted], Any]:
    """Whether an iteration of this size is due, the batches it wants, and the policy."""
    policy, algorithm, state = first_of((policies, algorithms, states))
    setup = Setup(NOWHERE, ANY, policy, algorithm)
    return due(setup, state, large, budget), list(wanted(setup, state, large)), policy


@functools.partial(Program, options=DEFAULTS, static_argnames=("large",))
def answer(
    policies: Any, algorithms: Algorithm, states: State, large: bool, budget: Budget, sampled: list[Trajectories]
) -> tuple[State, Row, Array]:
    """The state and row of an iteration, from the trajectories it asked for, and whether the budget holds another one."""
    policy, algorithm, state = first_of((policies, algorithms, states))
    setup = Setup(NOWHERE, ANY, policy, algorithm)
    every = zip(wanted(setup, state, large), sampled, strict=True)
    batches = (as_batch(policy, one, with_log_probs(policy, one.params, taken)) for one, taken in every)
    state, row = learn(setup, state, large, tuple(batches))
    return as_block(state), row, unfinished(setup, state, budget)


@functools.partial(Program, options=DEFAULTS, static_argnames=())
def more(policies: Any, algorithms: Algorithm, states: State, budget: Budget) -> Array:
    """Whether the budget holds another iteration."""
    policy, algorithm, state = first_of((policies, algorithms, states))
    return unfinished(Setup(NOWHERE, ANY, policy, algorithm), state, budget)


class PythonLoop:
    """Runs an environment outside JAX: one run at a time; a chunk is one unit of the schedule.

    `workers`: the number of Ray actors; None: play in this process. `runs`: the number of all runs, for the time forecast.
    """

    goes_ahead = False

    def __init__(
        self,
        env: OutsideEnvironment,
        horizon: int,
        blocks: int = 1,
        workers: int | None = None,
        runs: int = 1,
        stop: Stop | None = None,
    ) -> None:
        self.env, self.horizon, self.devices = env, horizon, list[jax.Device]()
        self.sizes: dict[bool, tuple[int, ...]] = {}  # of the batches of an iteration, by whether it is large
        self.sampler = Sampler(env, horizon) if workers is None else RaySampler(env, horizon, workers)
        self.forecast = Forecast(env.name, runs)
        self.left: tuple[Any, Any] = (None, None)  # the states after the last iteration, and whether the budget holds another
        self.sampler.stop = stop

    @staticmethod
    def block(runs: int) -> int:
        return 1

    def place(self, number: int) -> None:
        """The default device of JAX."""

    def prepare(self, block: Any) -> int:
        """The number of blocks that may be computed at the same time."""
        return 1

    def start(self, policy: Any, algorithm: Algorithm, seeds: Array, budget: Budget) -> tuple[State, Row | None]:
        states, rows = as_block(begin(Setup(self.env, self.horizon, *first_of((policy, algorithm))), seeds[0])), None
        if algorithm.schedule.first:
            states, rows = self.follow(algorithm.schedule.first, policy, algorithm, states, budget)
        return states, rows

    def chunk(self, policy: Any, algorithm: Algorithm, states: State, budget: Budget, pause: Array) -> Chunk:
        """One unit. A run may pause after any of them."""

        def going() -> bool:
            known, holds = self.left
            if known is not states:
                holds = more(policy, algorithm, states, budget)
            return bool(holds) and int(np.asarray(states.trajectories)[0]) < int(pause)

        if not going():
            return Chunk(0, states, None, False)
        states, rows = self.follow(algorithm.schedule.unit, policy, algorithm, states, budget)
        rows = jax.tree.map(lambda x: x[None], rows)
        return Chunk(int(rows is not None), states, rows, going())

    def follow(
        self, pattern: Pattern, policy: Any, algorithm: Algorithm, states: State, budget: Budget
    ) -> tuple[State, Row | None]:
        """The iterations of a pattern that are due, one after the other. Rows are [iterations, 1], or None."""
        rows = []
        for large in (large for large, times in pattern for _ in range(times)):
            live, every, acting = ask(policy, algorithm, states, large, budget)
            if live:
                sizes = self.sizes_of(policy, algorithm, states)[large]
                sampled = [self.batch(acting, one._replace(n=n), budget) for one, n in zip(every, sizes, strict=True)]
                states, row, holds = answer(policy, algorithm, states, large, budget, sampled)
                self.left = states, holds
                rows.append(row)
        return states, jax.tree.map(lambda *parts: np.stack(parts)[:, None], *rows) if rows else None

    def sizes_of(self, policy: Any, algorithm: Algorithm, states: State) -> dict[bool, tuple[int, ...]]:
        """The batch sizes of large and small iterations. They are found once, and the largest sets the number of slots."""
        if not self.sizes:
            policy, algorithm, state = first_of((policy, algorithm, states))
            setup = Setup(self.env, self.horizon, policy, algorithm)
            self.sizes = {large: wanted_sizes(setup, state, large) for large in (True, False)}
            self.sampler.least = max(*self.sizes[True], *self.sizes[False], 1)
        return self.sizes

    def batch(self, policy: Any, wanted: Wanted, budget: Budget) -> Trajectories:
        """A batch, without its log-probabilities."""
        began, n = time.perf_counter(), wanted.n
        if wanted.mixture is None:
            sampled = self.sampler.sample(policy, wanted.params, wanted.key, n)
        else:
            sampled = self.sampler.sample_both(policy, wanted.params, wanted.mixture.params, wanted.mixture.chosen, wanted.key)
        share = max(n / int(budget.trajectories), float(np.sum(sampled.mask)) / int(budget.steps))
        self.forecast.count(share, time.perf_counter() - began)
        return sampled

    def close(self) -> None:
        self.sampler.close()
