"""What the theory calls constants, measured on a finite process: exactly, at points that an ascent passes."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.chain import Tables
from stormpg.records import Tree
from stormpg.theory import tabular
from stormpg.theory.bounds import Constants

# Of soft-max tables: ‖∇log π‖ ≤ √2, and the largest eigenvalue of ∇²log π is at most 1/2 in size.
M, N = 2**0.5, 0.5
POINTS = 30  # of the path that are looked at
STEP = 0.1  # of the ascent, over the smoothness at its start


class Measured(NamedTuple):
    """The largest values at the points that were looked at; what the paper bounds by products of worst cases."""

    sigma2: float  # Var d(ξ)
    smoothness: float  # ‖∇²L(ξ)‖
    difference: float  # E‖d^{ξ'}(ξ) − d(ξ')‖² over ‖ξ − ξ'‖²: Lemma 3's constant
    gap: float  # L* − L(ξ_0), L* over all policies


def hessian_norm(tables: Tables, logits: Array, gamma: Array | float, horizon: int) -> Array:
    value = lambda flat: tabular.objective(tables, {"logits": flat.reshape(logits.shape)}, gamma, horizon)
    return jnp.abs(jnp.linalg.eigvalsh(jax.hessian(value)(logits.ravel()))).max()


def ratio(tables: Tables, sampled: Tree, evaluated: Tree, gamma: Array | float, horizon: int) -> Array:
    """E‖d^{ξ'}(ξ) − d(ξ')‖²/‖ξ − ξ'‖², ξ' = `sampled`."""
    distance = ((sampled["logits"] - evaluated["logits"]) ** 2).sum()
    return tabular.difference_moments(tables, sampled, evaluated, gamma, horizon).square / distance


@functools.partial(jax.jit, static_argnames="horizon")
def along(tables: Tables, points: Array, ahead: Array, gamma: Array | float, horizon: int) -> tuple[Array, Array, Array]:
    """σ² and ‖∇²L‖ at points [n, S, A], and Lemma 3's ratio for a step from each to the point `ahead` of it."""

    def at(pair: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        here, there = ({"logits": logits} for logits in pair)
        variance = tabular.estimate_moments(tables, here, gamma, horizon).variance
        return variance, hessian_norm(tables, pair[0], gamma, horizon), ratio(tables, there, here, gamma, horizon)

    return jax.lax.map(at, (points, ahead))


@functools.partial(jax.jit, static_argnames=("horizon", "length"))
def ascent(tables: Tables, gamma: Array | float, horizon: int, length: int) -> Array:
    """Exact gradient ascent from ξ_0 = 0: all its points, [length, S, A]."""
    logits = jnp.zeros(jnp.shape(tables.P)[:2])
    eta = STEP / hessian_norm(tables, logits, gamma, horizon)
    move = lambda x, _: (x + eta * tabular.gradient(tables, {"logits": x}, gamma, horizon)["logits"], x)
    return jax.lax.scan(move, logits, length=length)[1]


def measured(tables: Tables, gamma: float, horizon: int, length: int = 3000) -> Measured:
    """Along an exact ascent from the uniform policy."""
    points = ascent(tables, gamma, horizon, length)
    some = np.geomspace(1, length - 1, POINTS).astype(int) - 1
    variance, curvature, ratios = (float(np.max(x)) for x in along(tables, points[some], points[some + 1], gamma, horizon))
    start = tabular.objective(tables, {"logits": points[0]}, gamma, horizon)
    return Measured(variance, curvature, ratios, float(tabular.optimum(tables, gamma, horizon) - start))


def assumed(tables: Tables, gamma: float, horizon: int, found: Measured, phi2: float) -> Constants:
    """The paper's constants: bounds of rewards, scores and Hessians, with σ², φ² and Δ as measured."""
    R = float(np.abs(tables.R).max())
    return Constants(R=R, M=M, N=N, sigma2=found.sigma2, phi2=phi2, gap=found.gap, gamma=gamma, horizon=horizon)
