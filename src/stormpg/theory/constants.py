"""The constants of the theory on a finite process, computed exactly at points along an exact gradient ascent."""

import functools
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.chain import Tables
from stormpg.pytrees import Tree
from stormpg.theory import tabular
from stormpg.theory.bounds import Constants

# For soft-max tables ‖∇log π‖ ≤ √2, and the absolute eigenvalues of ∇²log π are at most 1/2.
M, N = 2**0.5, 0.5
POINTS = 30  # number of points of the path at which constants are computed
STEP = 0.1  # step size of the ascent, relative to 1 / smoothness at its start


class Measured(NamedTuple):
    """The largest values at the chosen points. The paper bounds them by products of worst cases."""

    sigma2: float  # Var d(ξ)
    smoothness: float  # ‖∇²L(ξ)‖
    difference: float  # E‖d^{ξ'}(ξ) − d(ξ')‖² / ‖ξ − ξ'‖²: Lemma 3's constant
    gap: float  # L* − L(ξ_0), L* over all policies


def hessian_norm(tables: Tables, logits: Array, gamma: Array | float, horizon: int) -> Array:
    """‖∇²L(ξ)‖, the largest absolute eigenvalue."""
    value = lambda flat: tabular.objective(tables, {"logits": flat.reshape(logits.shape)}, gamma, horizon)
    return jnp.abs(jnp.linalg.eigvalsh(jax.hessian(value)(logits.ravel()))).max()


def ratio(tables: Tables, sampled: Tree, evaluated: Tree, gamma: Array | float, horizon: int) -> Array:
    """E‖d^{ξ'}(ξ) − d(ξ')‖²/‖ξ − ξ'‖² with ξ' = `sampled`."""
    distance: Array = ((sampled["logits"] - evaluated["logits"]) ** 2).sum()
    return tabular.difference_moments(tables, sampled, evaluated, gamma, horizon).square / distance


@functools.partial(jax.jit, static_argnames="horizon")
def along(tables: Tables, points: Array, ahead: Array, gamma: Array | float, horizon: int) -> tuple[Array, Array, Array]:
    """Return σ² and ‖∇²L‖ at points [n, S, A], and Lemma 3's ratio for the step from each point to the one in `ahead`."""

    def at(pair: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        here, there = ({"logits": logits} for logits in pair)
        variance = tabular.estimate_moments(tables, here, gamma, horizon).variance
        return variance, hessian_norm(tables, pair[0], gamma, horizon), ratio(tables, there, here, gamma, horizon)

    return cast(tuple[Array, Array, Array], jax.lax.map(at, (points, ahead)))


@functools.partial(jax.jit, static_argnames=("horizon", "length"))
def ascent(tables: Tables, gamma: Array | float, horizon: int, length: int) -> Array:
    """Return all points of an exact gradient ascent from ξ_0 = 0, [length, S, A]."""
    logits = jnp.zeros(jnp.shape(tables.P)[:2])
    eta = STEP / hessian_norm(tables, logits, gamma, horizon)
    move = lambda x, _: (x + eta * tabular.gradient(tables, {"logits": x}, gamma, horizon)["logits"], x)
    points: Array = jax.lax.scan(move, logits, length=length)[1]
    return points


def measured(tables: Tables, gamma: float, horizon: int, length: int = 3000) -> Measured:
    """Return the constants along an exact ascent from the uniform policy."""
    points = ascent(tables, gamma, horizon, length)
    some = np.geomspace(1, length - 1, POINTS).astype(int) - 1
    variance, curvature, ratios = (float(np.max(x)) for x in along(tables, points[some], points[some + 1], gamma, horizon))
    start = tabular.objective(tables, {"logits": points[0]}, gamma, horizon)
    return Measured(variance, curvature, ratios, float(tabular.optimum(tables, gamma, horizon) - start))


def assumed(tables: Tables, gamma: float, horizon: int, found: Measured, phi2: float) -> Constants:
    """The paper's constants: bounds on rewards, scores and Hessians, with measured σ², φ² and Δ."""
    R = float(np.abs(tables.R).max())
    return Constants(R=R, M=M, N=N, sigma2=found.sigma2, phi2=phi2, gap=found.gap, gamma=gamma, horizon=horizon)
