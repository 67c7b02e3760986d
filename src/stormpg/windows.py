"""A window: the last K batches, and their importance weights under the mixture of the K policies that sampled them.

A trajectory of any of the batches is treated as sampled by the mixture (1/K) Σ_j π_{ξ_j} (the balance heuristic). Under ξ, the
weight of its step h is

    single step    π_ξ(a_h|s_h) / ((1/K) Σ_j π_{ξ_j}(a_h|s_h))
    cumulative     Π_{t≤h} π_ξ(a_t|s_t) / ((1/K) Σ_j Π_{t≤h} π_{ξ_j}(a_t|s_t))

Both are at most K. With fixed ξ_j, cumulative weights make every estimator unbiased; weights of single steps ignore that the
states were visited by other policies.

The ratios of all ξ_j are kept, so an iteration computes the log-probabilities of 2KB trajectories: the new batch under K
parameters, and all K batches under ξ_t. What is left in proportion to K² is a sum. The memory is 2·K·K·B·H numbers, and the K
batches themselves.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.contract import Blank
from stormpg.kernels import running_sums
from stormpg.machine.xla import platform
from stormpg.pytrees import Tree
from stormpg.scores import SHORT, fold_blocks, live_blocks, log_probs_in_blocks, whole_blocks
from stormpg.trajectories import BLOCK, Batch, Trajectories, Weights

LARGEST = 80.0  # logarithm of the largest ratio, so that a sum over K places does not overflow in float32


class Window(NamedTuple):
    """The last K batches. Trajectory k·B + i is the i-th of the batch in place k; a place that is still empty has mask 0."""

    trajectories: Trajectories  # [K·B, H, ...]
    params: Tree  # [K, ...] ξ_j, which sampled the batch in place j
    ratios: Weights  # [K, H, K·B] π_{ξ_j}/π_ξ' of steps, and their products up to each step; ξ' sampled the trajectory
    batches: Array  # their number so far

    def where(self, condition: Array, old: "Window") -> "Window":
        """This window if the condition holds, else one that equals `old` for all that follows.

        Only the number of batches is restored, and the next batch overwrites the rejected one. Restoring the arrays would copy
        all batches in every iteration.
        """
        return self._replace(batches=jnp.where(condition, self.batches, old.batches))

    @property
    def places(self) -> int:
        """K."""
        return len(self.ratios.step)

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
        Weights(*[jnp.zeros((K, horizon, n), one.log_prob.dtype)] * 2),
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
    under_all = jax.vmap(lambda one: ratios_under(policy, one, taken))(params)
    under_new = ratios_under(policy, batch.sampled_at, trajectories, keep=True)

    def kept(all: Array, of_batch: Array, of_place: Array) -> Array:
        made: Array = put(put(all, of_batch, first, axis=2), of_place[None], place)
        return made

    return Window(trajectories, params, Weights(*map(kept, window.ratios, under_all, under_new)), window.batches + 1)


def ratios_under(policy: Any, params: Tree, taken: Trajectories, keep: bool = False) -> Weights:
    """(π_ξ/π_ξ')(a_h|s_h) of each step, and their products up to it, [H, n]. `keep`: a sum of scores follows."""
    ratio = (log_probs_in_blocks(policy, params, taken, keep=keep) - taken.log_prob) * taken.mask
    # Sums of the ratios, which are small, lose fewer digits than those of log-probabilities.
    return Weights(*(jnp.exp(jnp.minimum(x, LARGEST)).T for x in (ratio, running_sums(ratio))))


def from_logarithms(total: np.ndarray) -> Weights:
    """Ratios from the logarithms of their products up to each step, [..., H, n], in NumPy."""
    ratio = np.diff(total, axis=-2, prepend=0.0).astype(total.dtype)
    return Weights(*(np.exp(np.minimum(x, LARGEST)) for x in (ratio, total)))


def newest(window: Window) -> Weights:
    """The ratios of all trajectories under the parameters of the last batch, [H, K·B]."""
    return Weights(*(jax.lax.dynamic_index_in_dim(x, window.newest, keepdims=False) for x in window.ratios))


def weights(window: Window) -> Weights:
    """The weights of all steps under the parameters that sampled the last batch."""
    share = (jnp.arange(window.places) < window.filled) / window.filled

    def mixed(ratios: Array) -> Array:
        if platform() != "cpu":
            return (jnp.expand_dims(share, range(1, ratios.ndim)) * ratios).sum(axis=0)
        # On a CPU a sum over the first axis at once would read the numbers of each step from K distant places.
        add_place = lambda place, total: total + share[place] * ratios[place]
        made: Array = jax.lax.fori_loop(0, window.places, add_place, jnp.zeros_like(ratios[0]))
        return made

    def block(nothing: tuple[()], arrays: tuple[Weights, Weights]) -> tuple[tuple[()], Weights]:
        # No division by 0: the mixture includes the policy that sampled the trajectory, whose ratio is 1.
        return nothing, Weights(*((ours[0] / mixed(every)).T for every, ours in zip(*arrays, strict=True)))

    ours = jax.tree.map(lambda x: x[None], newest(window))
    mask = window.trajectories.mask
    made: Weights = fold_blocks(block, (), (window.ratios, ours), mask)[1]
    if mask.shape[1] <= SHORT:
        return made
    # After the last block that was computed, all episodes have ended: their weights stay what they are.
    computed = jnp.arange(mask.shape[1]) < BLOCK * live_blocks(mask)
    last = ours.cumulative[0, -1] / mixed(window.ratios.cumulative[:, -1:])[0]
    return Weights(jnp.where(computed, made.step, 1.0), jnp.where(computed, made.cumulative, last[:, None]))


def own_weights(window: Window) -> Weights:
    """The weights of all steps under the parameters of the last batch, relative to those that sampled each trajectory."""
    return Weights(*(x.T for x in newest(window)))
