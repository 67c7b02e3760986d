"""Baselines. All are leave-one-out: the baseline of a trajectory is computed from the other trajectories of its batch.

A baseline that depends on its own trajectory would correlate with the scores and bias the gradient. Computed from the others
it is independent of them, and the estimate is exactly unbiased for every batch size. A batch of one has no baseline.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.errors import InputError, choose, nearest
from stormpg.trajectories import Trajectories

BASELINES = {  # the baselines of each estimator
    "gpomdp": ("none", "time", "optimal"),
    "reinforce": ("none", "time", "optimal"),
    "pgt": ("none", "time", "optimal", "value"),
}
RIDGE = 1e-5


def check_baseline(estimator: str, baseline: str) -> None:
    """Raise InputError if the baseline does not exist or does not fit the estimator."""
    choose("baseline", baseline, BASELINES["pgt"])
    if baseline not in BASELINES[estimator]:
        raise InputError(
            f"{estimator} cannot use the baseline {baseline!r}, whose b_h would depend on actions already scored (biased): "
            f"{nearest(baseline, BASELINES[estimator])}; {baseline!r} goes with pgt."
        )


def baseline_of(name: str, trajectories: Trajectories, signal: Array, score_sums: Callable[[], Array]) -> Array:
    """b_h computed from the batch: [n, H], or [n, H, parameters] for "optimal"."""
    if name == "time":
        return leave_one_out_mean(signal)
    if name == "value":
        return fit_values(trajectories, signal)
    if name == "optimal":
        return optimal(score_sums(), signal)
    return jnp.zeros_like(signal)


def leave_one_out_mean(x: Array) -> Array:
    """mean_{j≠i} x_j along the first axis; 0 if there is no other."""
    return (x.sum(axis=0, keepdims=True) - x) / max(x.shape[0] - 1, 1)


def leave_one_out_sum(x: Array) -> Array:
    """Σ_{j≠i} x_j along the first axis, computed without cancellation, so that zeros and signs are exact."""
    return jnp.tensordot(1 - jnp.eye(x.shape[0], dtype=x.dtype), x, axes=1)


def optimal(score_sum: Array, signal: Array) -> Array:
    """Peters and Schaal 2008: b = E[C² x] / E[C²] for each step and each parameter, the variance-minimising constant.

    score_sum: [n, H, p]; signal: [n, H]; result: [n, H, p]. It is 0 if no other trajectory has a score.
    """
    square = score_sum**2
    below = leave_one_out_sum(square)
    above = leave_one_out_sum(square * signal[:, :, None])
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1.0), 0.0)


def features(observation: Array) -> Array:
    """rllab's features of a state at time t: s, s², t/100, (t/100)², (t/100)³, 1. [H, ...] -> [H, f]."""
    horizon = observation.shape[0]
    s = jnp.reshape(observation, (horizon, -1)).astype(jnp.result_type(float))
    t = jnp.arange(horizon, dtype=s.dtype)[:, None] / 100
    return jnp.concatenate((s, s**2, t, t**2, t**3, jnp.ones_like(t)), axis=1)


def fit_values(trajectories: Trajectories, to_come: Array) -> Array:
    """V(s_h) γ^h, [n, H]: ridge regression of the discounted reward to come on the features, fitted to the others."""
    x = jax.vmap(features)(trajectories.observation) * trajectories.mask[:, :, None]
    gram = leave_one_out_sum(jnp.einsum("nhf,nhg->nfg", x, x))
    moment = leave_one_out_sum(jnp.einsum("nhf,nh->nf", x, to_come))

    def solve(gram: Array, moment: Array) -> Array:
        # The ridge grows with the data: otherwise rounding errors would dominate the pivots in float32.
        ridge = RIDGE * (1 + jnp.trace(gram) / len(gram)) * jnp.eye(len(gram), dtype=gram.dtype)
        return eliminate(gram + ridge, moment)

    return jnp.einsum("nhf,nf->nh", x, jax.vmap(solve)(gram, moment))


def eliminate(matrix: Array, right: Array) -> Array:
    """Solve a small positive definite system by Gauss-Jordan elimination. No pivoting is needed.

    A LAPACK call would wait for XLA's threads, and several blocks of runs doing so at the same time would deadlock.
    """

    def clear(k: int, rows: Array) -> Array:
        row = rows[k] / rows[k, k]
        return (rows - rows[:, k, None] * row).at[k].set(row)

    solved: Array = jax.lax.fori_loop(0, len(right), clear, jnp.column_stack((matrix, right)))
    return solved[:, -1]
