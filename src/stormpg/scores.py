"""Log-probabilities and score sums of a batch, computed in blocks of time steps up to the end of the longest episode.

The activations of one block fit into a core's cache and are recomputed for the gradient. Steps after the end of all episodes
cost nothing. The results equal the plain sums up to the order of additions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from stormpg import kernels
from stormpg.kernels import keeping
from stormpg.policies.families import log_probs_of
from stormpg.pytrees import Tree, add
from stormpg.trajectories import BLOCK, Trajectories, over_runs

T = TypeVar("T")

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


def log_probs_in_blocks(policy: Any, params: Tree, trajectories: Trajectories, keep: bool = False) -> Array:
    """The same as `log_probs`, computed in blocks or by a kernel. `keep`: a `score_sum` of both follows."""
    values, kept = kernels.instead("log_probs", _log_probs_in_blocks, policy, params, trajectories, keep=keep)
    keeping.keep(params, trajectories, kept)
    return values


def _log_probs_in_blocks(policy: Any, params: Tree, trajectories: Trajectories) -> Array:
    horizon = trajectories.mask.shape[1]
    if horizon <= SHORT:
        return log_probs(policy, params, trajectories)
    padded = whole_blocks(trajectories, horizon)

    def block(number: Array, values: Array) -> Array:
        new = log_probs(policy, params, _block(padded, number))
        return jax.lax.dynamic_update_slice_in_dim(values, new, number * BLOCK, axis=1)

    values: Array = jax.lax.fori_loop(0, live_blocks(padded.mask), block, jnp.zeros_like(padded.reward))
    return values[:, :horizon]


def score_sum(policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array) -> Tree:
    """Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]."""
    kept = keeping.recall(params, trajectories)
    return kernels.instead("score_sum", _score_sum, policy, params, trajectories, coefficient, kept)[0]


def _score_sum(policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array, kept: Tree = None) -> Tree:
    weighted = trajectories._replace(reward=coefficient)

    def of(part: Trajectories) -> Tree:
        return jax.grad(lambda params: (part.reward * log_probs(policy, params, part)).sum())(params)

    if trajectories.mask.shape[1] <= SHORT:
        return of(weighted)
    padded = whole_blocks(weighted, trajectories.mask.shape[1])
    nothing = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.fori_loop(0, live_blocks(padded.mask), lambda number, total: add(total, of(_block(padded, number))), nothing)


def score_sums(policy: Any, params: Tree, trajectories: Trajectories, coefficients: Array, parts: int) -> Tree:
    """`score_sum` for c sets of coefficients, [c, n, H], and for each of `parts` equal parts of the batch.

    The leaves of the result are [c, parts, ...]. All sets share one forward pass.
    """
    plain = partial(_score_sums, parts=parts)
    return kernels.instead("score_sums", plain, policy, params, trajectories, coefficients, parts=parts)[0]


def _score_sums(policy: Any, params: Tree, trajectories: Trajectories, coefficients: Array, parts: int) -> Tree:
    size = len(trajectories.mask) // parts

    def of_part(taken: Trajectories, coefficient: Array) -> Tree:
        pull = jax.vjp(lambda params: log_probs(policy, params, taken), params)[1]
        return jax.vmap(lambda one: pull(one)[0])(coefficient)

    def of(block: tuple[Trajectories, Array]) -> Tree:
        split = jax.tree.map(lambda x: x.reshape(parts, size, *x.shape[1:]), block)
        return jax.vmap(lambda taken, c: of_part(taken, jnp.moveaxis(c, -1, 0)), out_axes=1)(*split)

    def add_block(total: Tree, block: tuple[Trajectories, Array]) -> tuple[Tree, tuple[()]]:
        return add(total, of(block)), ()

    nothing = jax.tree.map(lambda x: jnp.zeros((len(coefficients), parts, *x.shape), x.dtype), params)
    return fold_blocks(add_block, nothing, (trajectories, jnp.moveaxis(coefficients, 0, -1)), trajectories.mask)[0]


def fold_blocks(body: Callable[[Tree, Tree], tuple[Tree, Tree]], carry: Tree, arrays: Tree, mask: Array) -> tuple[Tree, Tree]:
    """A scan over the blocks of time steps, the second axis of all arrays, up to the end of the longest episode.

    `body(carry, block)` returns the next carry and its outputs, [n, block, ...]. Outputs after the last block are 0.
    """
    horizon = mask.shape[1]
    if horizon <= SHORT:
        return body(carry, arrays)
    if horizon % BLOCK:
        carry, outputs = fold_blocks(body, carry, whole_blocks(arrays, horizon), whole_blocks(mask, horizon))
        return carry, jax.tree.map(lambda x: x[:, :horizon], outputs)

    def cut(number: Array | int) -> Tree:
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK, axis=1), arrays)

    shapes = jax.eval_shape(body, carry, jax.eval_shape(cut, 0))[1]
    outputs = jax.tree.map(lambda s: jnp.zeros((s.shape[0], horizon, *s.shape[2:]), s.dtype), shapes)

    def block(number: Array, state: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        carry, new = body(state[0], cut(number))
        put = lambda all, part: jax.lax.dynamic_update_slice_in_dim(all, part, number * BLOCK, axis=1)
        return carry, jax.tree.map(put, state[1], new)

    done: tuple[Tree, Tree] = jax.lax.fori_loop(0, live_blocks(mask), block, (carry, outputs))
    return done


def block_sum(value: Callable[[Trajectories], Array], trajectories: Trajectories) -> Array:
    """Σ value(block) over the blocks of steps, for a `value` that is itself a sum over steps.

    It can be differentiated any number of times with the memory of one block. Blocks after the last step cost nothing.
    """
    n, horizon = trajectories.mask.shape
    if horizon <= SHORT:
        return value(trajectories)
    parts = jax.tree.map(
        lambda x: jnp.moveaxis(x.reshape(n, -1, BLOCK, *x.shape[2:]), 1, 0), whole_blocks(trajectories, horizon)
    )  # fmt: skip

    def block(total: Array, part: Trajectories) -> tuple[Array, None]:
        live = over_runs(part.mask.sum()) > 0
        return total + jax.lax.cond(live, jax.checkpoint(value), lambda part: jnp.zeros(()), part), None

    return jax.lax.scan(block, jnp.zeros(()), parts)[0]


def whole_blocks(arrays: T, horizon: int) -> T:
    """Pad the second axis of all arrays, which has length `horizon`, to a whole number of blocks of time steps."""
    missing = -horizon % BLOCK
    pad = lambda x: jnp.pad(x, ((0, 0), (0, missing), *((0, 0),) * (x.ndim - 2)))
    padded: T = jax.tree.map(pad, arrays) if missing else arrays
    return padded


def _block(trajectories: Trajectories, number: Array) -> Trajectories:
    block: Trajectories = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK, axis=1), trajectories)
    return block


def live_blocks(mask: Array) -> Array:
    """The number of blocks in which any episode still runs."""
    starts = mask[:, ::BLOCK].sum(axis=0)  # an episode that is alive in a block is alive at its first step
    count: Array = (over_runs(starts) > 0).sum()
    return count
