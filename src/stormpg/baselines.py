"""Baselines. All are leave-one-out: the baseline of a trajectory is computed from the other trajectories of its batch.

A baseline that depends on its own trajectory would correlate with the scores and bias the gradient. Computed from the others
it is independent of them, and the estimate is exactly unbiased for every batch size. A batch of one has no baseline.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.polynomial.legendre import legvander

from stormpg.errors import InputError, choose, nearest
from stormpg.machine.xla import platform
from stormpg.scores import fold_blocks
from stormpg.trajectories import Trajectories

BASELINES = {  # the baselines of each estimator
    "gpomdp": ("none", "time", "optimal"),
    "reinforce": ("none", "time", "optimal"),
    "pgt": ("none", "time", "optimal", "value"),
}
RIDGE = 1e-5

einsum = partial(jnp.einsum, precision="highest")  # a GPU would round the factors to ten bits: too few for a regression


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
    return jnp.tensordot(1 - jnp.eye(x.shape[0], dtype=x.dtype), x, axes=1, precision="highest")


def from_other_groups(x: Array, places: int) -> Array:
    """The sum of x over all trajectories outside the own group, for a window of `places` batches of B: [n, ...] to [n, ...].

    The i-th trajectories of all batches form group i. What is computed from the other groups is the same for all of them and
    independent of each, so a baseline made from it keeps the estimate over the window unbiased. With one batch this is
    leave-one-out.
    """
    own = x.reshape(places, -1, *x.shape[1:]).sum(axis=0)
    return for_all_batches(leave_one_out_sum(own), places)


def for_all_batches(x: Array, places: int) -> Array:
    """The values of all groups, [B, ...], for every trajectory of a window, [n, ...]."""
    return jnp.tile(x, (places, *(1 for _ in x.shape[1:])))


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
    gram = leave_one_out_sum(einsum("nhf,nhg->nfg", x, x))
    moment = leave_one_out_sum(einsum("nhf,nh->nf", x, to_come))
    return einsum("nhf,nf->nh", x, jax.vmap(partial(solve_ridge, RIDGE))(gram, moment))


def solve_ridge(ridge: float, gram: Array, moment: Array) -> Array:
    """The coefficients of a ridge regression."""
    # The ridge grows with the data: otherwise rounding errors would dominate the pivots in float32.
    diagonal = ridge * (1 + jnp.trace(gram) / len(gram)) * jnp.eye(len(gram), dtype=gram.dtype)
    return solve_definite(gram + diagonal, moment)


CLIP = 5.0  # of standardised observations: the squares of rare large ones would dominate the fit
RIDGES = (1e-4, 1e-2, 0.1, 1.0, 10.0)  # relative to the mean square of a feature
MANY = 20  # components of a state, above which their products would be too many
DEGREE = 6  # of Legendre polynomials in t: enough for the values of an episode in which every step has the same reward


def states_of(trajectories: Trajectories) -> tuple[Array, Array, Array]:
    """All states as vectors, [n, H, d], and the mean and deviation of their components."""
    mask, live = trajectories.mask, trajectories.mask.sum()
    s = trajectories.observation.reshape(*mask.shape, -1).astype(trajectories.reward.dtype)
    shift = einsum("nhd,nh->d", s, mask) / live
    return s, shift, jnp.sqrt(einsum("nhd,nh->d", (s - shift) ** 2, mask) / live + 1e-8)


def state_values(trajectories: Trajectories, to_come: Array, age: Array) -> Array:
    """V(s_h, h), [n, H], 0 after the end: ridge regression of the reward to come, fitted to the other groups of a window.

    `age`, [K]: of its batches, 0 for the newest. Features: s, products of two of its components (squares only if there are
    more than 20), and polynomials in t up to degree 6; and age times s, s² and a polynomial of degree 2, since the policies of
    older batches had other values. s is standardised over the whole window and clipped. See `from_other_groups`.
    """
    places = len(age)
    mask = trajectories.mask
    n, horizon = mask.shape
    s, shift, spread = states_of(trajectories)
    powers = legvander(np.linspace(-1, 1, horizon), DEGREE).astype(s.dtype)
    time = jnp.broadcast_to(powers, (n, *powers.shape))
    dimension = s.shape[-1]
    first, second = np.triu_indices(dimension) if dimension <= MANY else (np.arange(dimension),) * 2
    ages = jnp.repeat(age, n // places)[:, None, None].astype(s.dtype)

    def described(s: Array, time: Array, mask: Array) -> Array:
        s = jnp.clip((s - shift) / spread, -CLIP, CLIP)
        older = ages * jnp.concatenate((s, s**2, time[:, :, :3]), axis=-1)
        return jnp.concatenate((s, s[..., first] * s[..., second], time, older), axis=-1) * mask[:, :, None]

    def fit(sums: tuple[Array, Array], block: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[()]]:
        *about, target = block
        x = described(*about)
        x, target = (y.reshape(places, -1, *y.shape[1:]) for y in (x, target))
        return (sums[0] + einsum("kbhf,kbhg->bfg", x, x), sums[1] + einsum("kbhf,kbh->bf", x, target)), ()

    groups, size = n // places, 3 * dimension + len(first) + DEGREE + 4
    nothing = jnp.zeros((groups, size, size), s.dtype), jnp.zeros((groups, size), s.dtype)
    sums = fold_blocks(fit, nothing, (s, time, mask, to_come * mask), mask)[0]
    of_time = np.zeros(size, bool)
    of_time[dimension + len(first) : dimension + len(first) + DEGREE + 1] = True
    gram, moment = sums
    theta = for_all_batches(fit_other_groups(gram, moment, of_time), places)
    predict = lambda none, block: (none, einsum("nhf,nf->nh", described(*block), theta))
    values: Array = fold_blocks(predict, (), (s, time, mask), mask)[1]
    return values


def fit_other_groups(gram: Array, moment: Array, free: np.ndarray) -> Array:
    """The coefficients for each group, [B, f], fitted to the other groups by ridge regressions.

    `gram`, [B, f, f], and `moment`, [B, f], are the sums of each group. Of all `RIDGES` the one with the smallest squared error
    is used, where the error of each group is that of the fit to the others. Features that are `free` always have the smallest.
    """
    others, target = leave_one_out_sum(gram), leave_one_out_sum(moment)
    unit = 1 + jnp.trace(others, axis1=1, axis2=2)[:, None] / len(free)
    penalties = jnp.where(jnp.asarray(free), RIDGES[0], jnp.asarray(RIDGES, gram.dtype)[:, None]) * unit[:, None]  # [B, r, f]

    def solve(gram: Array, moment: Array, penalty: Array) -> Array:
        return solve_definite(gram + jnp.diag(penalty), moment)

    theta = jax.vmap(jax.vmap(solve, (None, None, 0)))(others, target, penalties)  # [B, r, f]
    error = einsum("brf,bfg,brg->r", theta, gram, theta) - 2 * einsum("brf,bf->r", theta, moment)
    best: Array = jnp.take(theta, jnp.argmin(error), axis=1)
    return best


def solve_definite(matrix: Array, right: Array) -> Array:
    """Solve a small positive definite system.

    On a CPU by Gauss-Jordan elimination, which needs no pivoting: a LAPACK call would wait for XLA's threads, and several
    blocks of runs doing so at the same time would deadlock. On a GPU by Cholesky factors: each step of an elimination would
    launch several kernels.
    """
    if platform() != "cpu":
        from jax.scipy.linalg import solve  # its import takes time

        by_library: Array = solve(matrix, right, assume_a="pos")
        return by_library

    def clear(k: int, rows: Array) -> Array:
        row = rows[k] / rows[k, k]
        return (rows - rows[:, k, None] * row).at[k].set(row)

    solved: Array = jax.lax.fori_loop(0, len(right), clear, jnp.column_stack((matrix, right)))
    return solved[:, -1]
