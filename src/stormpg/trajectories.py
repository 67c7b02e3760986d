"""Trajectories and batches: what is sampled, and by which parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.pytrees import Tree


class Trajectories(NamedTuple):
    """n trajectories, padded to the horizon H. A padded step has mask, reward and log_prob 0.

    Padding stands for an absorbing state without reward. Estimators subtract the baseline b_h there too, and only mask the
    scores: this keeps a baseline after the end of an episode unbiased.
    """

    observation: Array  # [n, H, ...]
    action: Array  # [n, H, ...] unclipped, as sampled
    reward: Array  # [n, H]
    mask: Array  # [n, H] 1 while the episode runs
    log_prob: Array  # [n, H] under the parameters that sampled it


class Batch(NamedTuple):
    """Trajectories, and the parameters that sampled them."""

    trajectories: Trajectories
    sampled_at: Tree  # None for a mixture, whose density is in `trajectories.log_prob`


class Weights(NamedTuple):
    """Importance weights of all steps, [n, H]."""

    step: Array  # of the single step
    cumulative: Array  # w_h, of all steps up to this one

    def of(self, weighting: str) -> Array:
        """Those of an estimator with this weighting, "step" or "cumulative"."""
        return self.step if weighting == "step" else self.cumulative


def mixture_log_prob(log_probs: Array, shares: Array) -> Array:
    """log_prob, [n, H], of trajectories sampled by a mixture of K policies with these shares.

    `log_probs`, [K, n, H]: under each policy. The sum over the steps up to h is log Σ_k share_k Π_{t≤h} p_k(a_t|s_t), the
    denominator of the balance heuristic.
    """
    ratio = jnp.cumsum(log_probs - log_probs[0], axis=-1)  # differences are small, and lose fewer digits than the sums
    total = jax.nn.logsumexp(ratio + jnp.log(shares)[:, None, None], axis=0)
    return log_probs[0] + jnp.diff(total, axis=-1, prepend=jnp.log(shares.sum()))


BLOCK = 50  # time steps between two checks whether any episode still runs
RUNS = "runs"  # the axis_name of a `jax.vmap` over runs, so that loops over time steps end for all runs together


def over_runs(count: Any) -> Any:
    """The sum over all runs of a mapped batch. It is the same for each, so a loop on it is one loop, without masking."""
    try:
        return jax.lax.psum(count, RUNS)
    except NameError:  # not mapped, or not with that axis name
        return count


def mean_return(trajectories: Trajectories) -> Array:
    """The mean undiscounted return of the batch."""
    return trajectories.reward.sum(axis=1).mean()


def discounted(trajectories: Trajectories, gamma: Array | float) -> Array:
    """γ^h r_h, [n, H]."""
    return trajectories.reward * gamma ** jnp.arange(trajectories.reward.shape[1], dtype=trajectories.reward.dtype)


def sums_to_come(x: Array, factor: Array | float) -> Array:
    """Σ_{k≥h} factor^{k−h} x_k, [n, H]: block by block, because a scan over single steps is slow."""
    n, horizon = x.shape
    size = min(BLOCK, horizon)
    steps = jnp.arange(size)
    ahead = steps[:, None] - steps  # k − h
    within = jnp.where(ahead >= 0, factor ** jnp.maximum(ahead, 0).astype(x.dtype), 0.0)
    after = factor ** (size - steps).astype(x.dtype)
    blocks = jnp.pad(x, ((0, 0), (0, -horizon % size))).reshape(n, -1, size)

    def block(rest: Array, part: Array) -> tuple[Array, Array]:
        total = jnp.matmul(part, within, precision="highest") + rest[:, None] * after
        return total[:, 0], total

    sums = jax.lax.scan(block, jnp.zeros(n, x.dtype), jnp.moveaxis(blocks, 1, 0), reverse=True)[1]
    return jnp.moveaxis(sums, 0, 1).reshape(n, -1)[:, :horizon]
