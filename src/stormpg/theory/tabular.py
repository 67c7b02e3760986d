"""Exact values for finite decision processes: L(ξ), ∇L(ξ) and second moments of estimates, with soft-max tables.

L is computed by dynamic programming. For the moments, each trajectory carries a vector z, and every step multiplies it by a
matrix that depends only on the transition. E[z zᵀ] over the trajectories in each state then follows a linear recursion, and
the moments are blocks of its final value:

    d(ξ):                  z = (1, C, D)         C ← C + S,  D ← D + ρ C
    w_h:                   z = (1, w)            w ← ω w
    d^{ξ'}(ξ) − d(ξ'):     z = (1, w, X, Y, D)   X ← ω (X + w S_ξ),  Y ← Y + S_ξ',  D ← D + ρ (X − Y)

Here S is the score of the step, ρ = γ^h r_h − b_h, and ω = π_ξ/π_ξ' of the step.

`params` are those of `softmax_table`. All functions can be differentiated, compiled, and vectorised over parameters.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.chain import Tables
from stormpg.pytrees import Tree


class Moments(NamedTuple):
    """The moments of an estimate from one trajectory."""

    mean: Array  # [S, A]
    square: Array  # E‖·‖²

    @property
    def variance(self) -> Array:
        """E‖· − E·‖², Var in the paper."""
        return self.square - (self.mean**2).sum()


def probabilities(params: Tree) -> Array:
    """π_ξ(a|s), [S, A]."""
    return jax.nn.softmax(params["logits"], axis=1)


def scores(params: Tree) -> Array:
    """∇log π_ξ(a|s) with respect to all logits, [S, A, S · A]."""
    logits = params["logits"]
    jacobian: Array = jax.jacobian(lambda logits: jax.nn.log_softmax(logits, axis=1))(logits)
    return jacobian.reshape(*logits.shape, -1)


def objective(tables: Tables, params: Tree, gamma: Array | float, horizon: int) -> Array:
    """L(ξ) = E Σ_h γ^h r_h, equation (2), by dynamic programming."""
    P, R, rho, terminal = (jnp.asarray(x) for x in tables)
    policy, continues = probabilities(params), jnp.where(terminal, 0.0, 1.0)

    def backwards(value: Array, _: None) -> tuple[Array, None]:
        return jnp.einsum("sa,sat,sat->s", policy, P, R + gamma * (continues * value)), None

    return rho @ jax.lax.scan(backwards, jnp.zeros(len(rho)), length=horizon)[0]


def gradient(tables: Tables, params: Tree, gamma: Array | float, horizon: int) -> Tree:
    """∇L(ξ)."""
    return jax.grad(objective, argnums=1)(tables, params, gamma, horizon)


def optimum(tables: Tables, gamma: Array | float, horizon: int) -> Array:
    """L* over all policies, including time-dependent ones: an upper bound for soft-max tables."""
    P, R, rho, terminal = (jnp.asarray(x) for x in tables)
    continues = jnp.where(terminal, 0.0, 1.0)
    backwards = lambda value, _: (jnp.einsum("sat,sat->sa", P, R + gamma * (continues * value)).max(axis=1), None)
    return rho @ jax.lax.scan(backwards, jnp.zeros(len(rho)), length=horizon)[0]


def second_moments(
    tables: Tables, sampled: Tree, moving: Callable[[Array], Array], resting: Callable[[Array], Array], ones: int, horizon: int
) -> Array:
    """E[z zᵀ] after 1 .. H steps under π_ξ', ξ' = `sampled`: [H, size, size].

    moving(h): the matrices of all transitions at step h, [S, A, S, size, size].
    resting(h): the matrix of an episode that has ended, [size, size].
    ones: the number of leading components of z that start at 1. The others start at 0.
    """
    P, _, rho, terminal = (jnp.asarray(x) for x in tables)
    chance = probabilities(sampled)[:, :, None] * P
    first = jnp.where(jnp.arange(len(resting(jnp.zeros((), int)))) < ones, 1.0, 0.0)
    ended = jnp.where(terminal, 1.0, 0.0)[:, None, None]

    def step(moments: Array, h: Array) -> tuple[Array, Array]:
        T, stay = moving(h), resting(h)
        # An episode ends when it enters a terminal state, not when it starts in one.
        over = jnp.where(h == 0, 0.0, ended) * moments
        moved = jnp.einsum("satij,sjk,satlk,sat->til", T, moments - over, T, chance)
        after = moved + stay @ over @ stay.T
        return after, after.sum(axis=0)

    return jax.lax.scan(step, rho[:, None, None] * jnp.outer(first, first), jnp.arange(horizon))[1]


def signal(tables: Tables, gamma: Array | float, b: Array, h: Array) -> Array:
    """ρ = γ^h r − b_h for every transition, [S, A, S]. After the end of an episode it is −b_h, as in `estimators`."""
    return gamma**h * jnp.asarray(tables.R) - b[h]


def estimate_moments(
    tables: Tables, params: Tree, gamma: Array | float, horizon: int, baseline: Array | None = None
) -> Moments:  # fmt: skip
    """Moments of GPOMDP's d(ξ), equation (6), from one trajectory sampled at ξ, with a fixed b_h = `baseline`, [H]."""
    S, b = scores(params), jnp.zeros(horizon) if baseline is None else baseline
    p = S.shape[-1]
    C, D = slice(1, 1 + p), slice(1 + p, 1 + 2 * p)
    eye = jnp.eye(1 + 2 * p)

    def moving(h: Array) -> Array:
        rho = signal(tables, gamma, b, h)
        T = jnp.broadcast_to(eye, (*rho.shape, *eye.shape)).at[..., C, 0].set(S[:, :, None, :])
        T = T.at[..., D, C].set(rho[..., None, None] * jnp.eye(p))
        return T.at[..., D, 0].set(rho[..., None] * S[:, :, None, :])

    resting = lambda h: eye.at[D, C].set(-b[h] * jnp.eye(p))
    last = second_moments(tables, params, moving, resting, 1, horizon)[-1]
    return Moments(last[0, D].reshape(params["logits"].shape), jnp.trace(last[D, D]))


def noise_variance(tables: Tables, params: Tree, gamma: Array | float, horizon: int, noise: Array | float) -> Array:
    """What Gaussian reward noise adds to Var d(ξ): Σ_h γ^{2h} noise² Σ_{t≤h} E‖S_t‖². Assumes no terminal states."""
    policy, chance = probabilities(params), jnp.asarray(tables.P)
    square = (policy * (scores(params) ** 2).sum(axis=-1)).sum(axis=1)
    forwards = lambda at, _: (jnp.einsum("s,sa,sat->t", at, policy, chance), at @ square)
    each = jax.lax.scan(forwards, jnp.asarray(tables.rho), length=horizon)[1]
    return noise**2 * (gamma ** (2 * jnp.arange(horizon)) * jnp.cumsum(each)).sum()


def weight_variance(tables: Tables, sampled: Tree, evaluated: Tree, horizon: int) -> Array:
    """Var w_h over τ ~ p(·|ξ'), the left side of Lemma 2, for h = 0 .. H−1: w_h = Π_{t≤h} π_ξ/π_ξ'."""
    ratio = probabilities(evaluated) / probabilities(sampled)

    def moving(h: Array) -> Array:
        return jnp.broadcast_to(jnp.eye(2), (*jnp.shape(tables.P), 2, 2)).at[..., 1, 1].set(ratio[:, :, None])

    moments = second_moments(tables, sampled, moving, lambda h: jnp.eye(2), 2, horizon)
    return moments[:, 1, 1] - moments[:, 0, 1] ** 2


def difference_moments(
    tables: Tables, sampled: Tree, evaluated: Tree, gamma: Array | float, horizon: int, baseline: Array | None = None
) -> Moments:
    """Moments of d^{ξ'}(ξ) − d(ξ') from one trajectory sampled at ξ'. `square` is the left side of Lemma 3."""
    here, there = scores(sampled), scores(evaluated)
    ratio = (probabilities(evaluated) / probabilities(sampled))[:, :, None]
    b = jnp.zeros(horizon) if baseline is None else baseline
    p = here.shape[-1]
    size, eye = 2 + 3 * p, jnp.eye(p)
    X, Y, D = (slice(2 + i * p, 2 + (i + 1) * p) for i in range(3))

    def moving(h: Array) -> Array:
        rho = signal(tables, gamma, b, h)[..., None, None]
        T = jnp.zeros((*jnp.shape(tables.P), size, size)).at[..., 0, 0].set(1.0)
        T = T.at[..., 1, 1].set(ratio)
        T = T.at[..., X, X].set(ratio[..., None, None] * eye)
        T = T.at[..., X, 1].set(ratio[..., None] * there[:, :, None, :])
        T = T.at[..., Y, Y].set(eye)
        T = T.at[..., Y, 0].set(here[:, :, None, :])
        return T.at[..., D, :].set(rho * (T[..., X, :] - T[..., Y, :])).at[..., D, D].add(eye)

    resting = lambda h: jnp.eye(size).at[D, X].set(-b[h] * eye).at[D, Y].set(b[h] * eye)
    last = second_moments(tables, sampled, moving, resting, 2, horizon)[-1]
    return Moments(last[0, D].reshape(sampled["logits"].shape), jnp.trace(last[D, D]))
