"""One iteration of any algorithm on a batch that has been sampled: estimate, track, step, remember.

Nothing here knows where the batch came from, so the same function serves the compiled loop and environments that
live outside JAX.
"""

import functools
import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_where

from stormpg.algorithms import Algorithm
from stormpg.estimators import advantage, check_scalar, estimate
from stormpg.records import Tree, add, all_finite, as_float, norm
from stormpg.scores import block_sum, log_probs
from stormpg.steps import Landscape
from stormpg.trackers import Memory
from stormpg.trajectories import Trajectories, discounted, mean_return


class State(NamedTuple):
    """Everything a seed's run consists of."""

    key: Array  # of the seed; iteration t draws from fold_in(key, t), so it never changes
    params: Tree  # ξ_t
    memory: Memory | None  # the tracker's
    step: Any  # the optimiser's
    uniform: Tree  # an iterate drawn uniformly from ξ_0..ξ_{t−1}: Algorithm 1's output
    best: Tree  # the iterate whose own batch, sampled at it, had the largest mean return
    best_return: Array
    large_rate: Array  # step length for a unit of gradient at the last large batch
    ended: Array  # whether the small steps of this epoch are over
    diverged: Array  # whether it once left the finite numbers; its parameters are frozen since
    iteration: Array  # t
    trajectories: Array  # sampled so far
    steps: Array  # of the environment, sampled so far; it stays at LIMIT where it would pass it


LIMIT = 2**31 - 1  # of what is counted, in 32 bits


class Budget(NamedTuple):
    """What a run may sample: no batch goes beyond the trajectories, and none begins after the steps."""

    trajectories: Any
    steps: Any = LIMIT

    def holds(self, trajectories: Any, steps: Any, batch: int) -> Any:
        """Whether another batch is within it after so much."""
        return (trajectories + batch <= self.trajectories) & (steps < self.steps)


class Row(NamedTuple):
    """What is recorded of an iteration; the batch was sampled at ξ_t."""

    live: Array  # False: the iteration did not take place
    large: Array
    batch: Array  # trajectories sampled in it
    steps: Array  # environment steps sampled in it
    mean_return: Array
    discounted_return: Array
    gradient_norm: Array  # ‖g_t‖
    weight_mean: Array  # of the importance weights of the correction, over the steps taken
    weight_max: Array
    effective_sample_size: Array  # (Σw)²/Σw² over the weights of whole trajectories
    diverged: Array


def begin(policy: Any, algorithm: Algorithm, seed: Array) -> State:
    """The state of a seed before its first batch."""
    key = jax.random.key(seed)
    params = policy.init(jax.random.fold_in(key, 0))
    no, zero = jnp.zeros((), dtype=bool), jnp.zeros((), dtype=int)
    memory, step = algorithm.tracker.init(params), algorithm.step.init(params)
    return State(key, params, memory, step, params, params, as_float(-jnp.inf), as_float(0.0), no, no, zero, zero, zero)


def update(
    policy: Any,
    algorithm: Algorithm,
    state: State,
    batch: Trajectories,
    chance: Array,
    large: bool,
    whole: Trajectories | None = None,
) -> tuple[State, Row]:
    """Iteration t: from the batch sampled at ξ_t, g_t and ξ_{t+1}.

    `chance`: uniform on [0, 1), for the reservoir.
    `whole`: the large batch that this one was drawn from instead of sampled at ξ_t. A step looks around in all of it.
    """
    estimator, tracker, schedule = algorithm.estimator, algorithm.tracker, algorithm.schedule
    params, fresh = state.params, whole is None
    if large:
        tracked = tracker.large(estimator, policy, params, batch)
    else:
        assert state.memory is not None, "a tracker without a memory takes no small batches"
        tracked = tracker.small(estimator, policy, params, batch, state.memory, sampled_here=fresh)
    look = functools.partial(landscape, policy, algorithm, params, batch if whole is None else whole)
    moved, step = algorithm.step.apply(tracked.gradient, state.step, params, large, look)

    length, size = norm(add(moved, params, -1.0)), norm(tracked.gradient)
    rate = length / jnp.maximum(size, jnp.finfo(size.dtype).tiny)
    if large:
        large_rate, ended = rate, jnp.zeros_like(state.ended)
    else:
        large_rate = state.large_rate
        ended = (large_rate / schedule.S0 > rate / schedule.B) if schedule.adaptive else state.ended

    if fresh and hasattr(policy, "observe"):  # what a policy learns from a batch other than by its gradient
        moved = policy.observe(params, moved, batch)
    # A seed that leaves the finite numbers stays at its last finite state, goes on sampling there, and says so.
    good = all_finite((tracked.gradient, moved, step)) & ~state.diverged
    keep = (moved, tracked.memory, step, large_rate)
    moved, memory, step, large_rate = tree_where(good, keep, (params, state.memory, state.step, state.large_rate))

    # A reservoir of one: the t-th iterate replaces the kept one with probability 1/(t+1).
    uniform = tree_where(chance < 1 / (state.iteration + 1), params, state.uniform)
    reward = mean_return(batch)
    better = reward > state.best_return if fresh else jnp.zeros((), dtype=bool)  # only a batch sampled at ξ_t speaks for ξ_t
    sampled = batch.reward.shape[0] if fresh else 0
    row = Row(
        live=jnp.ones((), dtype=bool),
        large=jnp.full((), large),
        batch=jnp.full((), sampled),
        steps=(batch.mask.sum() if fresh else jnp.zeros(())).astype(int),
        mean_return=reward,
        discounted_return=discounted(batch, estimator.gamma).sum(axis=1).mean(),
        gradient_norm=size,
        weight_mean=(tracked.weight * batch.mask).sum() / batch.mask.sum(),
        weight_max=jnp.where(batch.mask > 0, tracked.weight, 0.0).max(),
        effective_sample_size=effective_sample_size(tracked.weight[:, -1]),
        diverged=~good,
    )
    after = State(
        key=state.key,
        params=moved,
        memory=memory,
        step=step,
        uniform=uniform,
        best=tree_where(better, params, state.best),
        best_return=jnp.where(better, reward, state.best_return),
        large_rate=large_rate,
        ended=ended,
        diverged=~good,
        iteration=state.iteration + 1,
        trajectories=state.trajectories + sampled,
        steps=jnp.minimum(state.steps, LIMIT - row.steps) + row.steps,
    )
    return after, row


class Draws(NamedTuple):
    """The randomness of iteration t: a function of seed and t alone."""

    rollout: Array  # key of the trajectories
    subset: Array  # key of the choice among them
    chance: Array  # uniform on [0, 1), for the reservoir


def draws(state: State) -> Draws:
    """One call for all three, and a key's own bits for the number: a random draw in a program is slow to compile."""
    counts = 3 * (state.iteration + 1) + jnp.arange(3)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(state.key, counts)
    bits = jax.random.key_data(keys[2])[-1] >> 8  # as many as a float32 holds
    return Draws(keys[0], keys[1], bits.astype(jnp.result_type(float)) / 2**24)


def named_key(state: State, name: str) -> Array:
    """The key of one more random draw of iteration t, by its name: a function of seed, name and t alone.

    The draws above are at 3(t + 1) + 0..2 of the seed's key, so a fourth there would change every run. The names have a
    branch of their own, at 1 (0 is the policy's start), and in it the digest of a name, then t.
    """
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    branch = jax.random.fold_in(jax.random.fold_in(state.key, 1), digest)
    return jax.random.fold_in(branch, state.iteration)


def large_iteration(
    policy: Any, algorithm: Algorithm, state: State, batch: Trajectories, draw: Draws, budget: Budget
) -> tuple[State, Row]:
    """An iteration on a large batch of S0 trajectories sampled at ξ_t, if they are within the budget."""
    after, row = update(policy, algorithm, state, batch, draw.chance, large=True)
    live = budget.holds(state.trajectories, state.steps, algorithm.schedule.S0)
    # Without its large batch an epoch has no small ones either.
    return tree_where(live, after, state._replace(ended=jnp.ones_like(live))), row._replace(live=live)


def small_iteration(
    policy: Any,
    algorithm: Algorithm,
    state: State,
    batch: Trajectories | None,
    draw: Draws,
    budget: Budget,
    whole: Trajectories | None = None,
) -> tuple[State, Row]:
    """An iteration on a small batch of B sampled at ξ_t, or drawn of the `whole` large batch, if it is within the budget."""
    B, cost = algorithm.schedule.B, algorithm.schedule.B
    if batch is None:
        assert whole is not None, "a small batch is sampled, or drawn of a large one"
        chosen = jax.random.permutation(draw.subset, whole.reward.shape[0])[:B]
        batch, cost = jax.tree.map(lambda x: x[chosen], whole), 0
    after, row = update(policy, algorithm, state, batch, draw.chance, large=False, whole=whole)
    live = ~state.ended & budget.holds(state.trajectories, state.steps, cost)
    return tree_where(live, after, state), row._replace(live=live)


def unfinished(algorithm: Algorithm, trajectories: Any, steps: Any, budget: Budget) -> Any:
    """Whether the budget of each run holds another unit after these numbers of trajectories and steps."""
    schedule = algorithm.schedule
    return budget.holds(trajectories, steps, schedule.B if schedule.m is None else schedule.S0)


def effective_sample_size(weight: Array) -> Array:
    """(Σw)²/Σw², from weights scaled by the largest so that no square overflows."""
    scaled = weight / jnp.maximum(weight.max(), jnp.finfo(weight.dtype).tiny)
    return scaled.sum() ** 2 / jnp.maximum((scaled**2).sum(), jnp.finfo(weight.dtype).tiny)


def landscape(policy: Any, algorithm: Algorithm, params: Tree, batch: Trajectories) -> Landscape:
    """The surrogate objective, whose gradient is that of `estimators.surrogate`, and the divergence from π_{ξ_t}."""
    check_scalar(algorithm.estimator)
    baseline = estimate(algorithm.estimator, policy, params, batch).baseline
    gain = batch.mask * advantage(algorithm.estimator, batch, jnp.ones_like(batch.reward), baseline)

    weighted = batch._replace(reward=gain / batch.reward.shape[0])

    def objective(candidate: Tree) -> Array:
        value = lambda part: (jnp.exp(log_probs(policy, candidate, part) - part.log_prob) * part.reward).sum()
        return block_sum(value, weighted)

    def divergence(candidate: Tree) -> Array:
        every_step = jax.vmap(jax.vmap(policy.kl, (None, None, 0)), (None, None, 0))
        value = lambda part: (every_step(params, candidate, part.observation) * part.mask).sum()
        return block_sum(value, batch) / batch.mask.sum()

    return Landscape(objective, divergence)
