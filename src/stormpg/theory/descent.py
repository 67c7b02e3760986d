"""Training runs on problems whose gradient is known, for many problems, settings and seeds at once.

`train` compiles a program for every environment. Here the arrays of a problem are traced, so all problems of the same shape
share one program. The iterations are those of the library (`engine.compiled_loop`). A step that records its inputs
(`recording`) provides the measurements.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from stormpg.algorithms import Algorithm
from stormpg.engine.budget import Budget
from stormpg.engine.compiled_loop import follow
from stormpg.engine.iteration import Setup, State, begin, cost
from stormpg.envs import Environment
from stormpg.envs.chain import Tables, from_tables
from stormpg.envs.lqr import System, from_system
from stormpg.machine.xla import ONCE, Program
from stormpg.policies.constructors import policy_for
from stormpg.pytrees import Tree, stack
from stormpg.schedules import Schedule, once
from stormpg.theory import linear, tabular
from stormpg.theory.counts import Branches, batch
from stormpg.theory.recording import Record, recorded
from stormpg.trajectories import RUNS

LARGE, SMALL = 2, 1  # placeholders for traced batch sizes
NO_LIMIT = Budget(2**30)  # trajectories: large enough to never stop a run


class Problem(NamedTuple):
    """The parts of a problem that a run needs."""

    env: Environment
    policy: Any
    gradient: Callable[[Tree], Tree]  # ∇L


@dataclasses.dataclass(frozen=True)
class Finite:
    """Finite decision processes with soft-max tables. A problem is (`Tables`, standard deviation of the reward noise)."""

    horizon: int
    gamma: float

    def __call__(self, data: tuple[Tables, Any]) -> Problem:
        tables, noise = data
        env = from_tables(tables, self.horizon, noise=noise)
        return Problem(env, policy_for(env), lambda params: tabular.gradient(tables, params, self.gamma, self.horizon))


@dataclasses.dataclass(frozen=True)
class Counted:
    """Finite processes whose batches are sampled as counts. A problem is (`Branches`, size of large batches, of small ones).

    The sizes are traced, so the program and its cost do not depend on them. The algorithm itself has S0 = LARGE and
    B = SMALL, which tell the two kinds of batches apart.
    """

    horizon: int
    gamma: float

    def __call__(self, data: tuple[Branches, Any, Any]) -> Problem:
        branches, S0, B = data
        tables = branches.tables
        env = from_tables(tables, self.horizon)
        draw = lambda policy, params, key, n, horizon: batch(
            branches, policy, params, key, S0 if n == LARGE else B, horizon
        )  # fmt: skip
        env = dataclasses.replace(env, batches=draw)
        return Problem(env, policy_for(env), lambda params: tabular.gradient(tables, params, self.gamma, self.horizon))


@dataclasses.dataclass(frozen=True)
class Linear:
    """Linear systems with linear-Gaussian policies of fixed σ. A problem is a `System`."""

    horizon: int
    gamma: float
    sigma: float = 0.5

    def __call__(self, data: System) -> Problem:
        env = from_system(data, self.horizon)
        policy = policy_for(env, "gaussian-linear", sigma=self.sigma)
        return Problem(env, policy, lambda p: linear.gradient(data, p, self.sigma, self.gamma, self.horizon))


Family = Finite | Counted | Linear


def watched_setup(family: Family, data: Any, algorithm: Algorithm) -> Setup:
    """The setup of a run whose step records the iterations of one schedule unit."""
    problem = family(data)
    length = sum(times for _, times in algorithm.schedule.unit)
    return Setup(problem.env, family.horizon, problem.policy, recorded(algorithm, problem.gradient, length))


@functools.partial(Program, options=ONCE, static_argnames=("family",))
def start(family: Family, data: Any, algorithms: Algorithm, seeds: Array) -> State:
    """Return the states of all runs after the iterations that precede the schedule's units."""

    def one(data: Any, algorithm: Algorithm, seed: Array) -> State:
        setup = watched_setup(family, data, algorithm)
        state, first = begin(setup, seed), algorithm.schedule.first
        return follow(first, setup, state, NO_LIMIT)[0] if first else state

    return jax.vmap(one, axis_name=RUNS)(data, algorithms, seeds)


@functools.partial(jax.jit, static_argnames=("family", "units", "what"))
def advance(
    family: Family, data: Any, algorithms: Algorithm, states: State, units: int, what: tuple[str, ...]
) -> tuple[State, dict[str, Any]]:
    """Run `units` more units. Return the states and the recorded quantities `what`, each [runs, iterations, ...]."""

    def one(data: Any, algorithm: Algorithm, state: State) -> tuple[State, dict[str, Any]]:
        setup = watched_setup(family, data, algorithm)

        def step(state: State, _: None) -> tuple[State, dict[str, Any]]:
            state = follow(algorithm.schedule.unit, setup, state, NO_LIMIT)[0]
            return state, seen(state.step, what)

        state, found = jax.lax.scan(step, state, length=units)
        return state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    return jax.vmap(one, axis_name=RUNS)(data, algorithms, states)


def seen(record: Record, what: tuple[str, ...]) -> dict[str, Any]:
    """The recorded quantities with these names."""
    return {name: getattr(record, name) for name in what}


class Descent:
    """Runs of every algorithm with every seed on every problem, [problems, algorithms, seeds, iterations, ...]."""

    def __init__(
        self,
        family: Family,
        problems: Sequence[Any],
        algorithms: Sequence[Algorithm],
        seeds: Sequence[int],
        what: tuple[str, ...] = ("gradient",),
        paired: bool = False,
    ) -> None:
        """Start the runs.

        what     names of the fields of `Record` to keep
        paired   each problem has its own algorithm, so the second axis has length one
        """
        self.family, self.what, self.schedule = family, what, algorithms[0].schedule
        self.shape = len(problems), 1 if paired else len(algorithms), len(seeds)
        numbers = [x.ravel() for x in np.meshgrid(*(np.arange(n) for n in self.shape), indexing="ij")]
        numbers[1] = numbers[0] if paired else numbers[1]
        choose: Callable[[Sequence[Tree], Any], Tree] = lambda many, which: jax.tree.map(lambda *x: np.stack(x)[which], *many)
        self.data, self.algorithms = choose(problems, numbers[0]), jax.tree.map(lambda x: x[numbers[1]], stack(algorithms))
        self.states = start(family, self.data, self.algorithms, np.asarray(seeds, np.int32)[numbers[2]])
        self.found: dict[str, list[Any]] = {name: [] for name in what}
        setup = watched_setup(family, problems[0], algorithms[0])
        first = jax.eval_shape(functools.partial(begin, setup), seeds[0])
        self.sizes = cost(setup, first, large=True), cost(setup, first, large=False)  # trajectories of an iteration
        if self.schedule.first:  # already done; without it, runs that differ only in it share one program from here on
            self.algorithms = dataclasses.replace(self.algorithms, schedule=once(self.schedule.B, self.schedule.B))
            self._note(seen(self.states.step, what))

    def _note(self, found: dict[str, Any]) -> None:
        for name, value in found.items():
            self.found[name].append(jax.tree.map(lambda x: np.asarray(x).reshape(*self.shape, *x.shape[1:]), value))

    def go_on(self, units: int) -> "Descent":
        """Run this number of units more. Each different number of units compiles a new program."""
        self.states, found = advance(self.family, self.data, self.algorithms, self.states, units, self.what)
        self._note(found)
        return self

    def units(self, trajectories: int) -> int:
        """The number of units that use up this number of trajectories."""
        large, small = self.sizes
        return max(trajectories // sum(times * (large if is_large else small) for is_large, times in self.schedule.unit), 1)

    def __getitem__(self, name: str) -> Any:
        """A recorded quantity over all iterations so far."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=3), *self.found[name])

    @property
    def trajectories(self) -> np.ndarray:
        """The number of trajectories sampled up to and including each iteration."""
        count = sum(jax.tree.leaves(part)[0].shape[3] for part in self.found[self.what[0]])
        return sampled(self.schedule, *self.sizes, count)


def sampled(schedule: Schedule, S0: int, B: int, count: int) -> np.ndarray:
    """Return the number of trajectories up to and including each of `count` iterations, with batches of these sizes."""
    return np.cumsum(np.where(schedule.larges(count), S0, B))
