"""The compiled loop, for environments in JAX: a chunk of iterations of a batch of runs is one program.

A unit of a schedule is an epoch, a single iteration, or one attempt at each batch size; only schedules by chance need a branch.
A chunk is a loop over units for all runs together.
"""

import contextlib
import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.algorithms import Algorithm
from stormpg.engine.budget import Budget
from stormpg.engine.iteration import Setup, State, Wanted, as_batch, begin, cost, due, learn, unfinished, wanted
from stormpg.engine.metrics import Row
from stormpg.envs.base import Environment
from stormpg.kernels.libraries import PREFIX
from stormpg.machine.blocks import as_here, block_size, cores, devices
from stormpg.machine.xla import OFTEN, ONCE, Program
from stormpg.pytrees import Tree, as_block, first_of, where
from stormpg.sampling.rollouts import rollout
from stormpg.schedules import Pattern
from stormpg.trajectories import RUNS, Batch, Trajectories, over_runs

CHUNK = 32  # the smallest number of units between two returns to Python
LONGER = 8  # times as many for small units: returning to Python takes about a millisecond
SMALL = 500  # time steps (trajectories × horizon of all runs) of a unit up to which chunks have full length
FEW_BLOCKS = 4  # up to this number, the program that starts them is compiled for short compile time


def sampled(setup: Setup, wanted: Wanted) -> Batch:
    """A batch that an iteration wants. Of a mixture, every trajectory is computed at both parameters, and one is used."""

    def at(params: Tree) -> Trajectories:
        return rollout(setup.env, setup.policy, params, wanted.key, wanted.n, setup.horizon, keep=wanted.mixture is None)

    taken = at(wanted.params)
    if wanted.mixture is not None:
        chosen = wanted.mixture.chosen
        pick = lambda x, y: jnp.where(chosen.reshape(-1, *(1,) * (x.ndim - 1)), x, y)
        taken = jax.tree.map(pick, at(wanted.mixture.params), taken)
    return as_batch(setup.policy, wanted, taken)


def iterate(setup: Setup, state: State, large: bool, budget: Budget) -> tuple[State, Row]:
    """An iteration with a batch of this size, if it is due and within the budget."""
    live = due(setup, state, large, budget)

    def compute(state: State) -> tuple[State, Row]:
        return learn(setup, state, large, tuple(sampled(setup, one) for one in wanted(setup, state, large)))

    if setup.algorithm.schedule.by_chance:
        blank: Row = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(compute, state)[1])
        after, row = jax.lax.cond(over_runs(live.astype(int)) > 0, compute, lambda state: (state, blank), state)
    else:
        after, row = compute(state)
    return where(live, after, state), row._replace(live=live)


def follow(pattern: Pattern, setup: Setup, state: State, budget: Budget) -> tuple[State, Row]:
    """The iterations of a pattern, one after the other. Rows are [iterations]."""
    parts = []
    for large, times in pattern:
        one = functools.partial(iterate, setup, large=large, budget=budget)
        if times > 1:
            state, rows = jax.lax.scan(_without_input(one), state, length=times)
        else:
            state, rows = one(state)
            rows = jax.tree.map(lambda x: x[None], rows)
        parts.append(rows)
    return state, jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)


def _without_input(one: Callable[[State], tuple[State, Row]]) -> Callable[[State, None], tuple[State, Row]]:
    return lambda state, _: one(state)


def over_all_runs(one: Callable[..., tuple[State, Row | None]]) -> Callable[..., tuple[State, Row | None]]:
    """Map `one` over a batch of runs: the first axis of its arguments and of states, the second axis of rows.

    A single run is not mapped: with an axis of length one XLA chooses slower matrix products.
    """

    def all_runs(*batch: Any) -> tuple[State, Row | None]:
        if len(jax.tree.leaves(batch[-1])[0]) > 1:
            return jax.vmap(one, out_axes=(0, 1), axis_name=RUNS)(*batch)
        state, rows = one(*first_of(batch))
        return as_block(state), jax.tree.map(lambda x: x[:, None], rows)

    return all_runs


@functools.partial(Program, options=ONCE, static_argnames=("env", "horizon"))
def start(
    env: Environment, horizon: int, policy: Any, algorithm: Algorithm, seeds: Array, budget: Budget
) -> tuple[State, Row | None]:
    """The states of all runs after the iterations that precede the units. Rows are [iterations, runs], or None."""

    def one(policy: Any, algorithm: Algorithm, seed: Array) -> tuple[State, Row | None]:
        setup, first = Setup(env, horizon, policy, algorithm), algorithm.schedule.first
        state = begin(setup, seed)
        return follow(first, setup, state, budget) if first else (state, None)

    return over_all_runs(one)(policy, algorithm, seeds)


def chunk_length(trajectories: int, horizon: int, runs: int) -> int:
    """The number of units of a chunk. `trajectories`: those of a unit."""
    return CHUNK * max(1, LONGER * SMALL // max(SMALL, runs * trajectories * horizon))


def unit_cost(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, states: State) -> int:
    """The largest number of trajectories of a unit. The runs are the first axis of all arguments."""
    policy, algorithm, state = first_of((policy, algorithm, states))
    setup = Setup(env, horizon, policy, algorithm)
    return sum(times * cost(setup, state, large) for large, times in algorithm.schedule.unit)


class Chunk(NamedTuple):
    """The result of a chunk of units."""

    units: Any  # their number
    states: State
    rows: Any  # a `Row` of [units, iterations of a unit, runs]; the first `units` of them count
    more: Any  # whether any run is unfinished and has not reached the pause


@functools.partial(Program, options=OFTEN, static_argnames=("env", "horizon"))
def chunk(
    env: Environment, horizon: int, policy: Any, algorithm: Algorithm, states: State, budget: Budget, pause: Array
) -> Chunk:
    """Units of all runs. Ends early if no budget allows another one, or all runs have reached `pause` trajectories."""
    pattern = algorithm.schedule.unit
    one = lambda policy, algorithm, state: follow(pattern, Setup(env, horizon, policy, algorithm), state, budget)
    every_run = jax.jit(over_all_runs(one))  # so that it is traced once, for its shapes and its use
    runs, shapes = len(states.trajectories), jax.eval_shape(every_run, policy, algorithm, states)[1]
    length = chunk_length(unit_cost(env, horizon, policy, algorithm, states), horizon, runs)
    blank = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shapes)

    def going(states: State) -> Array:
        """Whether any run is unfinished and has not reached the pause."""
        more = jax.vmap(lambda p, a, s: unfinished(Setup(env, horizon, p, a), s, budget))(policy, algorithm, states)
        return (more & (states.trajectories < pause)).any()

    def advance(carry: tuple[Array, State, Row]) -> tuple[Array, State, Row]:
        count, states, recorded = carry
        states, rows = every_run(policy, algorithm, states)
        return count + 1, states, jax.tree.map(lambda all, new: all.at[count].set(new), recorded, rows)

    done = jax.lax.while_loop(lambda c: (c[0] < length) & going(c[1]), advance, (jnp.zeros((), dtype=int), states, blank))
    return Chunk(*done, going(done[1]))


start_often = Program(start.function, OFTEN, start.static_argnames)  # slower to compile, faster to run


class CompiledLoop:
    """Runs an environment in JAX: a chunk of units of a block of runs is one program.

    `blocks`: the number of blocks. The other arguments are for the Python loop.
    """

    def __init__(self, env: Environment, horizon: int, blocks: int = 1, *others: Any) -> None:
        self.env, self.horizon, self.blocks = env, horizon, blocks
        self.devices = devices()[:blocks]
        self.compiling = ThreadPoolExecutor(1)

    @staticmethod
    def block(runs: int) -> int:
        """The number of runs of a block on this machine."""
        every = devices()
        if every[0].platform == "cpu":
            return block_size(runs, max(cores(), len(every)))
        return -(-runs // len(every))

    @property
    def goes_ahead(self) -> bool:
        """Whether the next chunk can be computed while the rows of one are read."""
        return bool(self.devices[0].platform != "cpu")

    @property
    def starter(self) -> Program:
        return start if self.blocks <= FEW_BLOCKS else start_often

    def place(self, number: int) -> jax.Device | None:
        """The device of a block; None: the default of JAX."""
        return self.devices[number % len(self.devices)] if len(self.devices) > 1 else None

    def prepare(self, block: tuple[Any, Algorithm, Any]) -> int:
        """Start to compile the program of a chunk. Returns the number of blocks that may be computed at the same time."""
        program = self.lowered(*block, self.place(0))
        self.compiling.submit(as_here(_compile), program)
        if self.blocks > 1 and calls_a_library(program):  # a single block cannot deadlock
            return 1 if self.devices[0].platform == "cpu" else len(self.devices)
        return max(cores(), len(self.devices))

    def start(self, policy: Any, algorithm: Algorithm, seeds: Array, budget: Budget) -> tuple[State, Row | None]:
        states, rows = self.starter(self.env, self.horizon, policy, algorithm, seeds, budget)
        return states, rows

    def chunk(self, policy: Any, algorithm: Algorithm, states: State, budget: Budget, pause: Array) -> Chunk:
        done: Chunk = chunk(self.env, self.horizon, policy, algorithm, states, budget, pause)
        return done

    def lowered(self, policy: Any, algorithm: Algorithm, seeds: Any, device: jax.Device | None = None) -> Any:
        """The program of a chunk, traced but not compiled. It is not traced again when it is called.

        `device`: the device of its arguments, if they are committed to one.
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

    def close(self) -> None:
        self.compiling.shutdown()


def _compile(program: Any) -> None:
    """Compile a program. A caller that needs it waits for this, or gets the same error."""
    with contextlib.suppress(Exception):
        program.compile()


def calls_a_library(program: Any) -> bool:
    """Whether a lowered program calls a library such as LAPACK, as a user's policy or step may.

    Such a call waits for XLA's threads. If several blocks do so at the same time, they deadlock. The library's own kernels wait
    for nothing.
    """
    called = re.findall(r'custom_call @"?(\w+)', program.as_text())
    return any(not name.startswith(PREFIX) for name in called)
