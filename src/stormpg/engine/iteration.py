"""One iteration of any algorithm: what it wants sampled, and what it learns from it.

The functions do not depend on how trajectories are sampled: the compiled loop and the Python loop share them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_where

from stormpg.algorithms import Algorithm
from stormpg.contract import START, Here, Moment, Sample
from stormpg.engine.budget import LIMIT, Budget
from stormpg.engine.metrics import Row, recorded, smallest
from stormpg.pytrees import Tree, add, all_finite, as_float, norm, where
from stormpg.sampling import empty_batch
from stormpg.scores import log_probs_in_blocks
from stormpg.trajectories import Batch, Trajectories, mean_return, mixture_log_prob


class State(NamedTuple):
    """The whole state of one run."""

    key: Array  # of the seed: it never changes, see `Moment.key`
    params: Tree  # ξ_t
    memory: Tree  # the tracker's
    step: Tree  # the step's
    schedule: Tree  # the schedule's
    uniform: Tree  # an iterate drawn uniformly from ξ_0..ξ_{t−1}: Algorithm 1's output
    best: Tree  # the parameters whose own batch, sampled at them, had the largest mean return
    best_return: Array
    diverged: Array  # whether a number became infinite or NaN; the parameters are frozen from then on
    iteration: Array  # t
    trajectories: Array  # sampled so far
    steps: Array  # environment steps sampled so far, at most LIMIT


class Setup(NamedTuple):
    """The environment, horizon, policy and algorithm of a run."""

    env: Any  # an environment in JAX, or outside
    horizon: int
    policy: Any
    algorithm: Algorithm


def begin(setup: Setup, seed: Any) -> State:
    """The state of a seed before its first batch."""
    key, algorithm = jax.random.key(seed), setup.algorithm
    params = setup.policy.init(jax.random.fold_in(key, START))
    zero = jnp.zeros((), dtype=int)

    def blank(n: int | None = None) -> Batch:
        return empty_batch(setup.env, setup.policy, params, algorithm.schedule.S0 if n is None else n, setup.horizon)

    return State(
        key=key,
        params=params,
        memory=algorithm.tracker.init(params, blank),
        step=algorithm.step.init(params),
        schedule=algorithm.schedule.init(),
        uniform=params,
        best=params,
        best_return=as_float(-jnp.inf),
        diverged=jnp.zeros((), dtype=bool),
        iteration=zero,
        trajectories=zero,
        steps=zero,
    )


def here_at(setup: Setup, state: State, large: bool) -> Here:
    """What the parts of an algorithm may know about the next iteration."""
    algorithm = setup.algorithm
    n = algorithm.schedule.S0 if large else algorithm.schedule.B
    return Here(state.key, state.iteration, state.params, setup.policy, algorithm.estimator, large, n)


class Mixture(NamedTuple):
    """Other parameters that sample a share of a batch."""

    params: Tree
    share: Array
    chosen: Array  # [n] which trajectories they sample


class Wanted(NamedTuple):
    """A batch to be sampled."""

    n: int
    params: Tree
    key: Array
    mixture: Mixture | None = None


def wanted(setup: Setup, state: State, large: bool) -> tuple[Wanted, ...]:
    """What the next iteration wants sampled."""
    here = here_at(setup, state, large)
    samples: tuple[Sample, ...] = setup.algorithm.tracker.wants(here, state.memory)
    names = ["rollout", *(f"rollout {number}" for number in range(1, len(samples)))]

    def one(sample: Sample, name: str) -> Wanted:
        point, mixture = state.params if sample.params is None else sample.params, None
        if sample.other is not None:
            chosen = jax.random.uniform(here.key(f"mixture of {name}"), (sample.n,)) < sample.share
            mixture = Mixture(sample.other, jnp.asarray(sample.share), chosen)
        return Wanted(sample.n, point, here.key(name), mixture)

    return tuple(one(sample, name) for sample, name in zip(samples, names, strict=False))


def as_batch(policy: Any, wanted: Wanted, taken: Trajectories) -> Batch:
    """Sampled trajectories with the parameters that sampled them, or with the density of their mixture."""
    if wanted.mixture is None:
        return Batch(taken, wanted.params)
    other, share, _ = wanted.mixture
    every = jnp.stack([log_probs_in_blocks(policy, params, taken) for params in (wanted.params, other)])
    return Batch(taken._replace(log_prob=mixture_log_prob(every, jnp.stack([1 - share, share]))), None)


def wanted_sizes(setup: Setup, state: State, large: bool) -> tuple[int, ...]:
    """The numbers of trajectories of the batches that an iteration wants. `state`: any, or the shapes of one."""
    sizes: list[int] = []

    def count(policy: Any, algorithm: Algorithm, state: State) -> None:
        here = here_at(Setup(setup.env, setup.horizon, policy, algorithm), state, large)
        sizes.extend(sample.n for sample in algorithm.tracker.wants(here, state.memory))

    jax.eval_shape(count, setup.policy, setup.algorithm, state)
    return tuple(sizes)


def cost(setup: Setup, state: State, large: bool) -> int:
    """The number of trajectories that an iteration samples."""
    return sum(wanted_sizes(setup, state, large))


def is_large(setup: Setup, state: State) -> Array:
    """Whether the next batch is a large one."""
    return jnp.asarray(setup.algorithm.schedule.large(state.schedule, Moment(state.key, state.iteration)))


def unfinished(setup: Setup, state: State, budget: Budget) -> Array:
    """Whether the budget holds another iteration."""
    large, small = (cost(setup, state, size) for size in (True, False))
    return budget.holds(state, jnp.where(is_large(setup, state), large, small))


def due(setup: Setup, state: State, large: bool, budget: Budget) -> Array:
    """Whether the next iteration is of this size, and within the budget."""
    return (is_large(setup, state) == large) & budget.holds(state, cost(setup, state, large))


def learn(setup: Setup, state: State, large: bool, batches: tuple[Batch, ...]) -> tuple[State, Row]:
    """Iteration t: from the batches that were wanted, g_t and ξ_{t+1}."""
    here, policy, algorithm = here_at(setup, state, large), setup.policy, setup.algorithm
    tracked = algorithm.tracker.track(here, batches, state.memory)
    moved, step = algorithm.step.apply(here, tracked, state.step)
    moved = here.limited(moved, tracked.batch)
    length, size = norm(add(moved, state.params, -1.0)), norm(tracked.gradient)
    rate = length / jnp.maximum(size, smallest(size))
    if hasattr(policy, "observe"):  # a policy may also learn from batches directly, such as observation statistics
        seen = state.params
        for batch in batches:
            seen = moved = policy.observe(seen, moved, batch.trajectories)
    # A run whose numbers are no longer finite keeps its last finite state, continues to sample, and is marked as diverged.
    good = all_finite((tracked.gradient, moved, step)) & ~state.diverged
    old, new = (state.params, state.memory, state.step), (moved, tracked.memory, step)
    params, memory, step = where(good, new, old)
    row = recorded(here, tracked, batches, size, ~good)
    best, best_return = best_of(state, batches)
    after = State(
        key=state.key,
        params=params,
        memory=memory,
        step=step,
        schedule=algorithm.schedule.after(state.schedule, large, jnp.where(good, rate, jnp.nan)),
        # A reservoir of one: the t-th iterate replaces the kept one with probability 1/(t+1).
        uniform=tree_where(here.uniform("uniform") < 1 / (state.iteration + 1), state.params, state.uniform),
        best=best,
        best_return=best_return,
        diverged=~good,
        iteration=state.iteration + 1,
        trajectories=state.trajectories + row.batch,
        steps=jnp.minimum(state.steps, LIMIT - row.steps) + row.steps,
    )
    return after, row


def best_of(state: State, batches: tuple[Batch, ...]) -> tuple[Tree, Array]:
    """The best parameters so far, and the mean return of the batch they sampled."""
    best, largest = state.best, state.best_return
    for batch in (batch for batch in batches if batch.sampled_at is not None):
        reward = mean_return(batch.trajectories)
        better = reward > largest
        best, largest = tree_where(better, batch.sampled_at, best), jnp.where(better, reward, largest)
    return best, largest
