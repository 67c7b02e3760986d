"""The library's own iterations on problems whose gradient is known: many problems, settings and seeds at once.

`train` compiles a program for every environment. Here the arrays of a problem are traced, so that all problems of a shape
share one; what is run is the same (`compiled.unit`), and what is recorded comes from a step that remembers (`tracking`).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from stormpg.algorithms import Algorithm
from stormpg.engine.compiled_loop import follow
from stormpg.engine.iteration import Budget, Setup, State, begin
from stormpg.envs import Environment
from stormpg.envs.chain import Tables, from_tables
from stormpg.envs.lqr import System, from_system
from stormpg.machine.xla import ONCE, Program
from stormpg.policies.constructors import policy_for
from stormpg.records import Tree, stack
from stormpg.schedules import Schedule, once
from stormpg.theory import linear, tabular
from stormpg.theory.counts import Branches, batch
from stormpg.theory.recording import Record, recorded
from stormpg.trajectories import RUNS

LARGE, SMALL = 2, 1  # batch sizes that stand for traced ones
FOR_EVER = Budget(2**30)  # trajectories: no budget ends these runs


class Problem(NamedTuple):
    """What a run needs to know of a problem."""

    env: Environment
    policy: Any
    gradient: Callable[[Tree], Tree]  # ∇L


@dataclasses.dataclass(frozen=True)
class Finite:
    """Finite decision processes with soft-max tables. A problem is (`Tables`, standard deviation of noise on rewards)."""

    horizon: int
    gamma: float

    def __call__(self, data: tuple[Tables, Any]) -> Problem:
        tables, noise = data
        env = from_tables(tables, self.horizon, noise=noise)
        return Problem(env, policy_for(env), lambda params: tabular.gradient(tables, params, self.gamma, self.horizon))


@dataclasses.dataclass(frozen=True)
class Counted:
    """Finite processes whose batches are drawn as counts. A problem is (`Branches`, size of large batches, of small ones).

    The sizes are traced: whatever they are, a program is the same, and so is what it costs. The algorithm's own S0 is LARGE
    and its B SMALL, which say which of the two is meant.
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
    """A problem, and the algorithm with a step that remembers the iterations of one unit."""
    problem = family(data)
    length = sum(times for _, times in algorithm.schedule.unit)
    return Setup(problem.env, family.horizon, problem.policy, recorded(algorithm, problem.gradient, length))


@functools.partial(Program, options=ONCE, static_argnames=("family",))
def start(family: Family, data: Any, algorithms: Algorithm, seeds: Array) -> State:
    """The states of all runs, after the iterations that come before the units."""

    def one(data: Any, algorithm: Algorithm, seed: Array) -> State:
        setup = watched_setup(family, data, algorithm)
        state, first = begin(setup, seed), algorithm.schedule.first
        return follow(first, setup, state, FOR_EVER)[0] if first else state

    return jax.vmap(one, axis_name=RUNS)(data, algorithms, seeds)


@functools.partial(jax.jit, static_argnames=("family", "units", "what"))
def onwards(
    family: Family, data: Any, algorithms: Algorithm, states: State, units: int, what: tuple[str, ...]
) -> tuple[State, dict[str, Any]]:
    """So many units more, and what was seen in them, each [runs, iterations, ...]."""

    def one(data: Any, algorithm: Algorithm, state: State) -> tuple[State, dict[str, Any]]:
        setup = watched_setup(family, data, algorithm)

        def step(state: State, _: None) -> tuple[State, dict[str, Any]]:
            state = follow(algorithm.schedule.unit, setup, state, FOR_EVER)[0]
            return state, seen(state.step, what)

        state, found = jax.lax.scan(step, state, length=units)
        return state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    return jax.vmap(one, axis_name=RUNS)(data, algorithms, states)


def seen(record: Record, what: tuple[str, ...]) -> dict[str, Any]:
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
        """`paired`: each problem has an algorithm of its own, so that the second axis is of length one."""
        self.family, self.what, self.schedule = family, what, algorithms[0].schedule
        self.shape = len(problems), 1 if paired else len(algorithms), len(seeds)
        numbers = [x.ravel() for x in np.meshgrid(*(np.arange(n) for n in self.shape), indexing="ij")]
        numbers[1] = numbers[0] if paired else numbers[1]
        choose = lambda many, which: jax.tree.map(lambda *x: np.stack(x)[which], *many)
        self.data, self.algorithms = choose(problems, numbers[0]), jax.tree.map(lambda x: x[numbers[1]], stack(algorithms))
        self.states = start(family, self.data, self.algorithms, np.asarray(seeds, np.int32)[numbers[2]])
        self.found: dict[str, list[Any]] = {name: [] for name in what}
        if self.schedule.first:  # it is over: runs that differ in it only continue with one program
            self.algorithms = dataclasses.replace(self.algorithms, schedule=once(self.schedule.B, self.schedule.B))
            self._note(seen(self.states.step, what))

    def _note(self, found: dict[str, Any]) -> None:
        for name, value in found.items():
            self.found[name].append(jax.tree.map(lambda x: np.asarray(x).reshape(*self.shape, *x.shape[1:]), value))

    def go_on(self, units: int) -> "Descent":
        """So many units more. Another number of units is another program."""
        self.states, found = onwards(self.family, self.data, self.algorithms, self.states, units, self.what)
        self._note(found)
        return self

    def __getitem__(self, name: str) -> Any:
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=3), *self.found[name])

    @property
    def trajectories(self) -> np.ndarray:
        """Sampled up to and with each iteration."""
        count = sum(jax.tree.leaves(part)[0].shape[3] for part in self.found[self.what[0]])
        return sampled(self.schedule, self.schedule.S0, self.schedule.B, count)


def sampled(schedule: Schedule, S0: int, B: int, count: int) -> np.ndarray:
    """The trajectories up to and with each of `count` iterations, with batches of these sizes."""
    return np.cumsum(np.where(schedule.larges(count), S0, B))
