"""Log-probabilities and score sums of a batch, computed in blocks of time steps up to the end of the longest episode.

The activations of one block fit into a core's cache and are recomputed for the gradient. Steps after the end of all episodes
cost nothing. The results equal the plain sums up to the order of additions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from stormpg import kernels
from stormpg.policies.families import log_probs_of
from stormpg.pytrees import Tree, add
from stormpg.trajectories import BLOCK, Trajectories, over_runs

SHORT = 100  # up to this horizon the plain sums are faster: nothing is computed twice


def log_probs(policy: Any, params: Tree, trajectories: Trajectories) -> Array:
    """log π_ξ(a_h|s_h), [n, H], 0 on padded steps. Can be differentiated in forward and reverse mode."""
    n, horizon = trajectories.mask.shape
    # In the order of the time steps, as a rollout records them: the order of the trajectories would need a copy.
    rows = [
        jnp.swapaxes(x, 0, 1).reshape(n * horizon, *x.shape[2:]) for x in (trajectories.observation, trajectories.action)
    ]  # fmt: skip
    values = log_probs_of(policy, params, *rows).reshape(horizon, n).T
    return jnp.where(trajectories.mask > 0, values, 0.0)


def log_probs_in_blocks(policy: Any, params: Tree, trajectories: Trajectories) -> Array:
    """The same as `log_probs`, computed in blocks or by a GPU kernel."""
    if kernels.applies(policy, params):
        from stormpg.kernels import gpu

        return gpu.log_probs(policy, params, trajectories)
    horizon = trajectories.mask.shape[1]
    if horizon <= SHORT:
        return log_probs(policy, params, trajectories)
    padded = _whole_blocks(trajectories)

    def block(number: Array, values: Array) -> Array:
        new = log_probs(policy, params, _block(padded, number))
        return jax.lax.dynamic_update_slice_in_dim(values, new, number * BLOCK, axis=1)

    values: Array = jax.lax.fori_loop(0, _live_blocks(padded), block, jnp.zeros_like(padded.reward))
    return values[:, :horizon]


def score_sum(policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array) -> Tree:
    """Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]."""
    if kernels.applies(policy, params):
        from stormpg.kernels import gpu

        return gpu.score_sum(policy, params, trajectories, coefficient)
    weighted = trajectories._replace(reward=coefficient)

    def of(part: Trajectories) -> Tree:
        return jax.grad(lambda params: (part.reward * log_probs(policy, params, part)).sum())(params)

    if trajectories.mask.shape[1] <= SHORT:
        return of(weighted)
    padded = _whole_blocks(weighted)
    nothing = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.fori_loop(0, _live_blocks(padded), lambda number, total: add(total, of(_block(padded, number))), nothing)


def block_sum(value: Callable[[Trajectories], Array], trajectories: Trajectories) -> Array:
    """Σ value(block) over the blocks of steps, for a `value` that is itself a sum over steps.

    It can be differentiated any number of times with the memory of one block. Blocks after the last step cost nothing.
    """
    n, horizon = trajectories.mask.shape
    if horizon <= SHORT:
        return value(trajectories)
    parts = jax.tree.map(
        lambda x: jnp.moveaxis(x.reshape(n, -1, BLOCK, *x.shape[2:]), 1, 0), _whole_blocks(trajectories)
    )  # fmt: skip

    def block(total: Array, part: Trajectories) -> tuple[Array, None]:
        live = over_runs(part.mask.sum()) > 0
        return total + jax.lax.cond(live, jax.checkpoint(value), lambda part: jnp.zeros(()), part), None

    return jax.lax.scan(block, jnp.zeros(()), parts)[0]


def _whole_blocks(trajectories: Trajectories) -> Trajectories:
    """Pad to a whole number of blocks."""
    missing = -trajectories.mask.shape[1] % BLOCK
    pad = lambda x: jnp.pad(x, ((0, 0), (0, missing), *((0, 0),) * (x.ndim - 2)))
    return jax.tree.map(pad, trajectories) if missing else trajectories


def _block(trajectories: Trajectories, number: Array) -> Trajectories:
    block: Trajectories = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK, axis=1), trajectories)
    return block


def _live_blocks(trajectories: Trajectories) -> Array:
    """The number of blocks in which any episode still runs."""
    starts = trajectories.mask[:, ::BLOCK].sum(axis=0)  # an episode that is alive in a block is alive at its first step
    count: Array = (over_runs(starts) > 0).sum()
    return count
