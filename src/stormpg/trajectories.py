"""Trajectories, and what is said of them without asking who is to learn from them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.records import Tree


class Trajectories(NamedTuple):
    """n trajectories, padded to the horizon H. A padded step has mask, reward and log_prob 0.

    Padding stands for an absorbing state without reward, which is what makes a baseline b_h after the end of an
    episode unbiased: estimators subtract it there too, and only the scores are masked.
    """

    observation: Array  # [n, H, ...]
    action: Array  # [n, H, ...] unclipped, as sampled
    reward: Array  # [n, H]
    mask: Array  # [n, H] 1 while the episode runs
    log_prob: Array  # [n, H] under the parameters that sampled it


class Batch(NamedTuple):
    """Trajectories, and who sampled them."""

    trajectories: Trajectories
    sampled_at: Tree  # the parameters; None for a mixture, whose density is in `trajectories.log_prob`


def mixture_log_prob(log_probs: Array, shares: Array) -> Array:
    """log_prob, [n, H], of trajectories sampled by a mixture: with share_k by the k-th of `log_probs`, [K, n, H].

    Summed over the steps up to h it is log Σ_k share_k Π_{t≤h} p_k(a_t|s_t), which is the denominator of the balance heuristic.
    """
    ratio = jnp.cumsum(log_probs - log_probs[0], axis=-1)  # small numbers: the sums themselves would lose digits
    total = jax.nn.logsumexp(ratio + jnp.log(shares)[:, None, None], axis=0)
    return log_probs[0] + jnp.diff(total, axis=-1, prepend=jnp.log(shares.sum()))


BLOCK = 50  # steps between two looks at whether any episode still runs
RUNS = "runs"  # the axis_name of a `jax.vmap` over runs: loops over steps then end for all of them together


def over_runs(count: Any) -> Any:
    """A sum over all runs of a mapped batch: the same for each, so that a loop that asks it is one loop, not a masked one."""
    try:
        return jax.lax.psum(count, RUNS)
    except NameError:  # not mapped, or not under that name
        return count


def mean_return(trajectories: Trajectories) -> Array:
    """The mean undiscounted return of the batch."""
    return trajectories.reward.sum(axis=1).mean()


def discounted(trajectories: Trajectories, gamma: Array | float) -> Array:
    """γ^h r_h, [n, H]."""
    return trajectories.reward * gamma ** jnp.arange(trajectories.reward.shape[1], dtype=trajectories.reward.dtype)
