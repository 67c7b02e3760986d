"""A window: the last K batches, and their importance weights under the mixture of the K policies that sampled them.

A trajectory of any of the batches is treated as sampled by the mixture (1/K) Σ_j π_{ξ_j} (the balance heuristic). Under ξ, the
weight of its step h is

    single step    π_ξ(a_h|s_h) / ((1/K) Σ_j π_{ξ_j}(a_h|s_h))
    cumulative     Π_{t≤h} π_ξ(a_t|s_t) / ((1/K) Σ_j Π_{t≤h} π_{ξ_j}(a_t|s_t))

Both are at most K. With fixed ξ_j, cumulative weights make every estimator unbiased; weights of single steps ignore that the
states were visited by other policies.

The ratios of all ξ_j are kept, so an iteration computes the log-probabilities of 2KB trajectories: the new batch under K
parameters, and all K batches under ξ_t. The memory is K·K·B·H numbers, and the K batches themselves.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Blank
from stormpg.pytrees import Tree
from stormpg.scores import SHORT, fold_blocks, log_probs_in_blocks, whole_blocks
from stormpg.trajectories import Batch, Trajectories, Weights


class Window(NamedTuple):
    """The last K batches. Trajectory k·B + i is the i-th of the batch in place k; a place that is still empty has mask 0."""

    trajectories: Trajectories  # [K·B, H, ...]
    params: Tree  # [K, ...] ξ_j, which sampled the batch in place j
    ratios: Array  # [K, H, K·B] Σ_{t≤h} log(π_{ξ_j}/π_ξ')(a_t|s_t), with ξ' the parameters that sampled the trajectory
    batches: Array  # their number so far

    @property
    def places(self) -> int:
        """K."""
        return len(self.ratios)

    @property
    def filled(self) -> Array:
        """The number of batches in the window."""
        return jnp.minimum(self.batches, self.places)

    @property
    def newest(self) -> Array:
        """The place of the last batch."""
        return (self.batches - 1) % self.places

    @property
    def age(self) -> Array:
        """Of the batch in each place, [K]: 0 for the newest, below 1 for the oldest."""
        return (self.newest - jnp.arange(self.places)) % self.places / self.places


def empty(K: int, params: Tree, blank: Blank) -> Window:
    """A window without batches."""
    one = in_blocks(blank().trajectories)
    n, horizon = K * len(one.mask), one.mask.shape[1]
    return Window(
        jax.tree.map(lambda x: jnp.zeros((n, *x.shape[1:]), x.dtype), one),
        jax.tree.map(lambda x: jnp.broadcast_to(x, (K, *jnp.shape(x))), params),
        jnp.zeros((K, horizon, n), one.log_prob.dtype),
        jnp.zeros((), int),
    )


def in_blocks(trajectories: Trajectories) -> Trajectories:
    """Long trajectories, padded to a whole number of blocks of time steps."""
    horizon = trajectories.mask.shape[1]
    return whole_blocks(trajectories, horizon) if horizon > SHORT else trajectories


def add_batch(window: Window, policy: Any, batch: Batch) -> Window:
    """The window with a new batch in place of the oldest, and all ratios that this changes."""
    taken, place = in_blocks(batch.trajectories), window.batches % window.places
    put = partial(jax.lax.dynamic_update_slice_in_dim, axis=0)
    params = jax.tree.map(lambda all, new: put(all, new[None], place), window.params, batch.sampled_at)
    first = place * len(taken.mask)
    trajectories = jax.tree.map(lambda all, new: put(all, new, first), window.trajectories, taken)
    under_all = jax.vmap(lambda one: summed_ratios(policy, one, taken))(params)
    under_new = summed_ratios(policy, batch.sampled_at, trajectories)
    kept = put(put(window.ratios, under_all, first, axis=2), under_new[None], place)
    return Window(trajectories, params, kept, window.batches + 1)


def summed_ratios(policy: Any, params: Tree, taken: Trajectories) -> Array:
    """Σ_{t≤h} log(π_ξ/π_ξ')(a_t|s_t), [H, n]. The ratios are small, so their sums lose fewer digits than log-probabilities."""
    ratio = (log_probs_in_blocks(policy, params, taken) - taken.log_prob) * taken.mask
    return jnp.cumsum(ratio, axis=1).T


def weights(window: Window) -> Weights:
    """The weights of all steps under the parameters that sampled the last batch."""
    newest = jax.lax.dynamic_index_in_dim(window.ratios, window.newest, keepdims=True)
    log_share = jnp.where(jnp.arange(window.places) < window.filled, -jnp.log(window.filled), -jnp.inf)

    def block(before: Array, arrays: tuple[Array, Array]) -> tuple[Array, Weights]:
        every, now = arrays

        def total(place: Array) -> Array:
            return every[place] - now[0]

        def single(place: Array) -> Array:
            return jnp.diff(total(place), axis=0, prepend=before[place][None])

        def mixed(ratio: Callable[[Array], Array]) -> Array:
            # A sum over the first axis at once would read the numbers of each step from K distant places.
            add_place = lambda place, total: total + jnp.exp(ratio(place) + log_share[place])
            made: Array = jax.lax.fori_loop(0, window.places, add_place, jnp.zeros_like(now[0]))
            return made

        # The sum is at least the share of the newest. If it overflows, the weight is 0, which is its limit.
        return (every - now)[:, -1], Weights(1 / mixed(single).T, 1 / mixed(total).T)

    start = jnp.zeros_like(window.ratios[:, 0])
    made: Weights = fold_blocks(block, start, (window.ratios, newest), window.trajectories.mask)[1]
    return made


def own_weights(window: Window) -> Weights:
    """The weights of all steps under the parameters of the last batch, relative to those that sampled each trajectory."""
    total = jax.lax.dynamic_index_in_dim(window.ratios, window.newest, keepdims=False).T
    return Weights(jnp.exp(jnp.diff(total, axis=1, prepend=0.0)), jnp.exp(total))
