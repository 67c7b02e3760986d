"""The compiled loop: a chunk of iterations of an environment in JAX is one program over a batch of runs.

The unit of a schedule (an epoch, or a single step) is a scan without branches; a chunk is a loop of units over all
runs at once.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.algorithms import Algorithm
from stormpg.compiler import OFTEN, ONCE, Program
from stormpg.envs import Environment
from stormpg.iteration import Budget, Row, State, begin, draws, large_iteration, small_iteration, unfinished
from stormpg.schedules import Schedule
from stormpg.trajectories import RUNS, Trajectories, rollout

CHUNK = 32  # units between two returns to Python, at least
LONGER = 8  # so many times that where units are small: returning costs about a millisecond
SMALL = 500  # slots (trajectories × horizon of all runs) of a unit for the longest chunk; twice of it, half as long ...
FEW_BLOCKS = 4  # up to so many, a program that starts them had better be compiled fast than run fast


def large_step(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, state: State, budget: Budget):
    """Sample S0 trajectories at ξ_t and step. Also returns the batch."""
    draw = draws(state)
    batch = rollout(env, policy, state.params, draw.rollout, algorithm.schedule.S0, horizon)
    return *large_iteration(policy, algorithm, state, batch, draw, budget), batch


def small_step(
    env: Environment,
    horizon: int,
    policy: Any,
    algorithm: Algorithm,
    state: State,
    budget: Budget,
    whole: Trajectories | None = None,
) -> tuple[State, Row]:
    """Sample B trajectories at ξ_t, or draw B of the `whole` large batch, and step."""
    draw, B = draws(state), algorithm.schedule.B
    batch = rollout(env, policy, state.params, draw.rollout, B, horizon) if whole is None else None
    return small_iteration(policy, algorithm, state, batch, draw, budget, whole)


def unit(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, state: State, budget: Budget):
    """What a schedule repeats: a small step, a large one, or a large one and m small ones. Rows are [1 + m]."""
    problem, schedule = (env, horizon, policy, algorithm), algorithm.schedule
    if schedule.m is None:
        state, row = small_step(*problem, state, budget)
        return state, jax.tree.map(lambda x: x[None], row)
    state, first, batch = large_step(*problem, state, budget)
    first = jax.tree.map(lambda x: x[None], first)
    if schedule.m == 0:
        return state, first
    whole = None if schedule.resample else batch
    state, rest = jax.lax.scan(lambda s, _: small_step(*problem, s, budget, whole), state, length=schedule.m)
    return state, jax.tree.map(lambda a, b: jnp.concatenate((a, b)), first, rest)


def over_all_runs(one: Callable[..., tuple[State, Row | None]]) -> Callable[..., tuple[State, Row | None]]:
    """`one` for every run of a batch: the runs are the first axis of what it takes and of states, the second of rows.

    A lone run is not mapped: with an axis of length one XLA picks slower matrix products.
    """

    def all_runs(*batch: Any) -> tuple[State, Row | None]:
        if len(jax.tree.leaves(batch[-1])[0]) > 1:
            return jax.vmap(one, out_axes=(0, 1), axis_name=RUNS)(*batch)
        state, rows = one(*jax.tree.map(lambda x: x[0], batch))
        return jax.tree.map(lambda x: x[None], state), jax.tree.map(lambda x: x[:, None], rows)

    return all_runs


@functools.partial(Program, options=ONCE, static_argnames=("env", "horizon"))
def start(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, seeds: Array, budget: Budget):
    """The states of all runs; a schedule with one large batch takes it here. Rows are [1, runs], or None."""

    def one(policy: Any, algorithm: Algorithm, seed: Array):
        state = begin(policy, algorithm, seed)
        if algorithm.schedule.m is not None:
            return state, None
        state, row, _ = large_step(env, horizon, policy, algorithm, state, budget)
        return state, jax.tree.map(lambda x: x[None], row)

    return over_all_runs(one)(policy, algorithm, seeds)


def chunk_length(schedule: Schedule, horizon: int, runs: int) -> int:
    """How many units make a chunk."""
    return CHUNK * max(1, LONGER * SMALL // max(SMALL, runs * schedule.unit * horizon))


@functools.partial(Program, options=OFTEN, static_argnames=("env", "horizon"))
def chunk(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, states: State, budget: Budget, pause: Array):
    """Units of all runs, ending early when no run's budget holds another, or all have come to `pause` trajectories.

    Rows are [units, 1 + m, runs].
    """
    length = chunk_length(algorithm.schedule, horizon, len(states.trajectories))
    one = lambda policy, algorithm, state: unit(env, horizon, policy, algorithm, state, budget)
    every_run = jax.jit(over_all_runs(one))  # so that it is traced once, for its shapes and for its use
    shapes = jax.eval_shape(every_run, policy, algorithm, states)[1]
    recorded = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shapes)

    def going(carry: tuple[Array, State, Row]) -> Array:
        count, states, _ = carry
        going_on = unfinished(algorithm, states.trajectories, states.steps, budget) & (states.trajectories < pause)
        return (count < length) & going_on.any()

    def advance(carry: tuple[Array, State, Row]) -> tuple[Array, State, Row]:
        count, states, recorded = carry
        states, rows = every_run(policy, algorithm, states)
        return count + 1, states, jax.tree.map(lambda all, new: all.at[count].set(new), recorded, rows)

    return jax.lax.while_loop(going, advance, (jnp.zeros((), dtype=int), states, recorded))


start_often = Program(start.function, OFTEN, start.static_argnames)  # slower to compile, and faster to run


class Compiled(NamedTuple):
    """How `train` runs an environment in JAX."""

    env: Environment
    horizon: int
    blocks: int = 1  # of runs: each of them starts once

    @property
    def goes_ahead(self) -> bool:
        """Whether the next chunk can be computed while the rows of one are read."""
        return jax.default_backend() != "cpu"

    @property
    def starter(self) -> Program:
        return start if self.blocks <= FEW_BLOCKS else start_often

    def start(self, policy: Any, algorithm: Algorithm, seeds: Array, budget: Budget) -> tuple[State, Row | None]:
        return self.starter(self.env, self.horizon, policy, algorithm, seeds, budget)

    def chunk(self, policy: Any, algorithm: Algorithm, states: State, budget: Budget, pause: Array) -> tuple[Array, State, Row]:
        return chunk(self.env, self.horizon, policy, algorithm, states, budget, pause)

    def lowered(self, policy: Any, algorithm: Algorithm, seeds: np.ndarray, device: jax.Device | None = None) -> Any:
        """The program of a chunk before it is compiled. What is traced for it is not traced again.

        `device`: which its arguments are bound to, if they are.
        """
        pause = jnp.asarray(0)
        budget = Budget(pause, pause)
        states = self.starter.eval_shape(self.env, self.horizon, policy, algorithm, seeds, budget)[0]
        if device is not None:
            policy, algorithm, budget, pause = jax.device_put((policy, algorithm, budget, pause), device)
            there = jax.sharding.SingleDeviceSharding(device)
            bound = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there, weak_type=x.weak_type)
            states = jax.tree.map(bound, states)
        return chunk.lower(self.env, self.horizon, policy, algorithm, states, budget, pause)


def calls_a_library(program: Any) -> bool:
    """Whether a lowered program calls LAPACK or the like, as a policy or a step of the user's may.

    Such a call waits for XLA's threads. When several blocks of runs do that at once, they wait for ever.
    """
    return "custom_call" in program.as_text()
