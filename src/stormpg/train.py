"""train(): one compiled program for a chunk of iterations, over a batch of seeds and of float settings.

The unit of a schedule (an epoch, or a single step) is a scan without branches; a chunk is a loop of units over all
runs at once. Python returns between chunks, to collect what was recorded and to report progress.
"""

import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.compiler import Once
from stormpg.envs import Environment, make
from stormpg.errors import InputError
from stormpg.iteration import Row, State, begin, draws, update
from stormpg.parallel import cores, cut, in_blocks
from stormpg.policies import check_policy, policy_for
from stormpg.records import stack, traceable, where
from stormpg.result import Progress, Result, Watch, columns
from stormpg.trajectories import RUNS, Trajectories, rollout

CHUNK = 32  # units between two returns to Python


def large_step(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, state: State, budget: Array):
    """Sample S0 trajectories at ξ_t and step, if they are within the budget. Also returns the batch."""
    S0, draw = algorithm.schedule.S0, draws(state)
    batch = rollout(env, policy, state.params, draw.rollout, S0, horizon)
    after, row = update(policy, algorithm, state, batch, draw.chance, large=True)
    live = state.trajectories + S0 <= budget
    # Without its large batch an epoch has no small ones either.
    return where(live, after, state._replace(ended=jnp.ones_like(live))), row._replace(live=live), batch


def small_step(
    env: Environment,
    horizon: int,
    policy: Any,
    algorithm: Algorithm,
    state: State,
    budget: Array,
    whole: Trajectories | None = None,
) -> tuple[State, Row]:
    """Sample B trajectories at ξ_t, or draw B of the `whole` large batch, and step, if within the budget."""
    B, draw = algorithm.schedule.B, draws(state)
    if whole is None:
        batch, cost = rollout(env, policy, state.params, draw.rollout, B, horizon), B
    else:
        chosen = jax.random.permutation(draw.subset, whole.reward.shape[0])[:B]
        batch, cost = jax.tree.map(lambda x: x[chosen], whole), 0
    after, row = update(policy, algorithm, state, batch, draw.chance, large=False, whole=whole)
    live = ~state.ended & (state.trajectories + cost <= budget)
    return where(live, after, state), row._replace(live=live)


def unit(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, state: State, budget: Array):
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


@functools.partial(Once, static_argnames=("env", "horizon"))
def start(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, seeds: Array, budget: Array):
    """The states of all runs; a schedule with one large batch takes it here. Rows are [1, runs], or None."""

    def one(policy: Any, algorithm: Algorithm, seed: Array):
        state = begin(policy, algorithm, seed)
        if algorithm.schedule.m is not None:
            return state, None
        state, row, _ = large_step(env, horizon, policy, algorithm, state, budget)
        return state, jax.tree.map(lambda x: x[None], row)

    return jax.vmap(one, out_axes=(0, 1), axis_name=RUNS)(policy, algorithm, seeds)


@functools.partial(jax.jit, static_argnames=("env", "horizon"))
def chunk(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, states: State, budget: Array):
    """Up to CHUNK units of all runs, ending early when no run's budget holds another. Rows are [units, 1 + m, runs]."""
    every_run = jax.vmap(functools.partial(unit, env, horizon), in_axes=(0, 0, 0, None), out_axes=(0, 1), axis_name=RUNS)
    shapes = jax.eval_shape(every_run, policy, algorithm, states, budget)[1]
    recorded = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)

    def going(carry: tuple[Array, State, Row]) -> Array:
        count, states, _ = carry
        return (count < CHUNK) & unfinished(algorithm, states, budget).any()

    def advance(carry: tuple[Array, State, Row]) -> tuple[Array, State, Row]:
        count, states, recorded = carry
        states, rows = every_run(policy, algorithm, states, budget)
        return count + 1, states, jax.tree.map(lambda all, new: all.at[count].set(new), recorded, rows)

    return jax.lax.while_loop(going, advance, (jnp.zeros((), dtype=int), states, recorded))


def unfinished(algorithm: Algorithm, states: State, budget: Array) -> Array:
    """Whether the budget of each run holds another unit."""
    schedule = algorithm.schedule
    return states.trajectories + (schedule.B if schedule.m is None else schedule.S0) <= budget


def run(
    env: Environment,
    horizon: int,
    policy: Any,
    algorithm: Algorithm,
    seeds: Array,
    trajectories: int,
    report: Callable[[State, Row], None],
) -> tuple[State, Row]:
    """A batch of runs from nothing until its budget is spent: its states, and its rows, [iterations, runs]."""
    budget, collected = jnp.asarray(trajectories), []
    states, rows = start(env, horizon, policy, algorithm, seeds, budget)
    if rows is not None:
        collected.append(jax.tree.map(np.asarray, rows))
    while bool(unfinished(algorithm, states, budget).any()):
        units, states, recorded = chunk(env, horizon, policy, algorithm, states, budget)
        rows = jax.tree.map(lambda x, count=int(units): np.asarray(x)[:count].reshape(-1, x.shape[-1]), recorded)
        collected.append(rows)
        report(states, rows)
    return states, jax.tree.map(lambda *parts: np.concatenate(parts), *collected)


def calls_a_library(env: Environment, horizon: int, policy: Any, algorithm: Algorithm, seeds: np.ndarray) -> bool:
    """Whether the program calls LAPACK or the like, as a policy or a step of the user's may.

    Such a call waits for XLA's threads. When several blocks of runs do that at once, they wait for ever.
    """
    budget = jnp.asarray(0)
    states = start.eval_shape(env, horizon, policy, algorithm, seeds, budget)[0]
    return "custom_call" in chunk.lower(env, horizon, policy, algorithm, states, budget).as_text()


def train(
    env: Environment | str,
    algorithm: Algorithm | str | Sequence[Algorithm] = "storm-pg",
    trajectories: int = 4000,
    seeds: int | Sequence[int] = 30,
    seed: int = 0,
    horizon: int | None = None,
    policy: Any = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Train every seed with a budget of trajectories, large batches included; a batch that would not fit is not sampled.

    algorithm     one, its name, or a list that differs in float settings only: these run as one batch beside the seeds
    seeds, seed   that many seeds from `seed` on; or the seeds themselves
    horizon       H; the environment's own by default
    policy        `policy_for(env)` by default; or a list, one for each algorithm
    out           a folder to write the run to
    progress      called after each chunk with a `Progress`
    """
    env = make(env) if isinstance(env, str) else env
    algorithms: list[Any] = (
        list(algorithm) if isinstance(algorithm, Sequence) and not isinstance(algorithm, str) else [algorithm]
    )
    algorithms = [_algorithm(a) for a in algorithms]
    policies = [
        policy_for(env) if p is None else p for p in (policy if isinstance(policy, list) else [policy] * len(algorithms))
    ]
    numbers = list(range(seed, seed + _whole("seeds", seeds))) if isinstance(seeds, int) else [int(s) for s in seeds]
    horizon = _whole("horizon", env.horizon if horizon is None else horizon)
    _check(env, algorithms, policies, numbers, trajectories)
    if out is not None:
        from stormpg import store

        store.prepare(out)

    # Run r is setting r // seeds with seed r % seeds.
    repeat = functools.partial(jax.tree.map, lambda x: np.repeat(x, len(numbers), axis=0))
    runs: tuple[Any, Algorithm, Any] = (
        repeat(stack([traceable(p) for p in policies])),
        repeat(_stack(algorithms)),
        np.tile(np.asarray(numbers, np.int32), len(algorithms)),
    )
    began = time.perf_counter()
    watch = Watch(trajectories, began, progress)

    def work(block: tuple[Any, Algorithm, Any]) -> tuple[State, Row]:
        return run(env, horizon, *block, trajectories, watch.report)

    blocks = cut(runs, cores())
    # Asked with the shapes of a block, so that what is traced for it is not traced again.
    alone = len(blocks) == 1 or calls_a_library(env, horizon, *blocks[0])
    states, rows = in_blocks(work, blocks, len(numbers) * len(algorithms), workers=1 if alone else cores())
    result = Result(
        env=env,
        algorithms=tuple(algorithms),
        policies=tuple(policies),
        seeds=tuple(numbers),
        horizon=horizon,
        trajectories=trajectories,
        columns=columns(env.name, algorithms, numbers, rows),
        states=states,
        seconds=time.perf_counter() - began,
    )
    if out is not None:
        store.save(result, out)
    return result


def _algorithm(thing: Any) -> Algorithm:
    if isinstance(thing, str):
        return make_algorithm(thing)
    if not isinstance(thing, Algorithm):
        raise InputError(
            f"{type(thing).__name__} is not an algorithm: give its name, a constructor's result such as storm_pg(), or "
            'make_algorithm("gpomdp", eta=0.005) for those that share their name with an estimator.'
        )
    return thing


def _stack(algorithms: list[Algorithm]) -> Algorithm:
    try:
        return stack(algorithms)
    except ValueError:
        raise InputError(
            "the algorithms given differ in more than their float settings (batch sizes, baseline, optimiser ...); "
            "train each shape by itself."
        ) from None


def _check(env: Environment, algorithms: list[Algorithm], policies: list[Any], seeds: list[int], trajectories: int) -> None:
    if not algorithms or not seeds:
        raise InputError("no algorithm or no seed was given; expected at least one of each.")
    if len(policies) != len(algorithms):
        raise InputError(f"{len(policies)} policies were given for {len(algorithms)} algorithms; expected one for each.")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"the seeds are {seeds}; expected different numbers of at least 0.")
    check_budget(algorithms[0], trajectories)
    for policy in policies:
        check_policy(env, policy)


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
