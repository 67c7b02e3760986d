"""A window: the last K batches, and their importance weights under the mixture of the K policies that sampled them.

A trajectory of any of the batches is treated as sampled by the mixture (1/K) Σ_j π_{ξ_j} (the balance heuristic). Under ξ, the
weight of its step h is

    single step    π_ξ(a_h|s_h) / ((1/K) Σ_j π_{ξ_j}(a_h|s_h))
    cumulative     Π_{t≤h} π_ξ(a_t|s_t) / ((1/K) Σ_j Π_{t≤h} π_{ξ_j}(a_t|s_t))

Both are at most K. With fixed ξ_j, cumulative weights make every estimator unbiased; weights of single steps ignore that the
states were visited by other policies.

The log-probabilities under all ξ_j are kept, so an iteration computes 2KB of them: the new batch under K parameters, and all
K batches under ξ_t. The memory is K·B·H·K numbers, and the K batches themselves.
"""

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
    log_probs: Array  # [K·B, H, K] log π_{ξ_j}(a_h|s_h)
    batches: Array  # their number so far

    @property
    def places(self) -> int:
        """K."""
        return self.log_probs.shape[-1]

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
        jnp.zeros((n, horizon, K), one.log_prob.dtype),
        jnp.zeros((), int),
    )


def in_blocks(trajectories: Trajectories) -> Trajectories:
    """Long trajectories, padded to a whole number of blocks of time steps."""
    horizon = trajectories.mask.shape[1]
    return whole_blocks(trajectories, horizon) if horizon > SHORT else trajectories


def add_batch(window: Window, policy: Any, batch: Batch) -> Window:
    """The window with a new batch in place of the oldest, and all log-probabilities that this changes."""
    taken, place = in_blocks(batch.trajectories), window.batches % window.places
    put = partial(jax.lax.dynamic_update_slice_in_dim, axis=0)
    params = jax.tree.map(lambda all, new: put(all, new[None], place), window.params, batch.sampled_at)
    first = place * len(taken.mask)
    trajectories = jax.tree.map(lambda all, new: put(all, new, first), window.trajectories, taken)
    under_all = jnp.moveaxis(jax.vmap(lambda one: log_probs_in_blocks(policy, one, taken))(params), 0, -1)
    under_new = log_probs_in_blocks(policy, batch.sampled_at, trajectories)[:, :, None]
    kept = jax.lax.dynamic_update_slice_in_dim(put(window.log_probs, under_all, first), under_new, place, axis=2)
    return Window(trajectories, params, kept, window.batches + 1)


def weights(window: Window) -> Weights:
    """The weights of all steps under the parameters that sampled the last batch."""
    log_probs = jax.lax.dynamic_index_in_dim(window.log_probs, window.newest, axis=2, keepdims=False)
    share = jnp.where(jnp.arange(window.places) < window.filled, 1.0 / window.filled, 0.0)

    def block(before: Array, arrays: tuple[Array, Array]) -> tuple[Array, Weights]:
        now, every = arrays
        # Differences are small, and lose fewer digits than the sums.
        single = every - now[:, :, None]
        total = before[:, None, :] + jnp.cumsum(single, axis=1)
        under_mixture = [-jax.nn.logsumexp(ratio, axis=-1, b=share) for ratio in (single, total)]
        return total[:, -1], Weights(*(jnp.exp(x) for x in under_mixture))

    start = jnp.zeros((len(log_probs), window.places), log_probs.dtype)
    made: Weights = fold_blocks(block, start, (log_probs, window.log_probs), window.trajectories.mask)[1]
    return made
