"""Exact values for linear systems: L(ξ) and ∇L(ξ) of `lqr` under a linear-Gaussian policy, from second moments.

With x = (s, 1) the action is a = Kᵀx + σ ε, K = ξ (the policy `gaussian-linear`). Then x' = F x + noise and

    Σ_0 = E[x_0 x_0ᵀ],  Σ_{h+1} = F Σ_h Fᵀ + covariance of the noise,  L = −Σ_h γ^h [ tr(QΣ_h) + tr(R KᵀΣ_h K) + σ² tr R ].
"""

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.lqr import System
from stormpg.pytrees import Tree


def objective(system: System, params: Tree, sigma: Array | float, gamma: Array | float, horizon: int) -> Array:
    """L(ξ) for ξ = `params` of a `gaussian-linear` policy with fixed σ."""
    A, B, Q, R = (jnp.asarray(matrix) for matrix in system[:4])
    K, d = params["mean"], len(A)
    F = jnp.zeros((d + 1, d + 1)).at[:d, :d].set(A).at[d, d].set(1.0).at[:d, :].add(B @ K.T)
    noise = jnp.zeros((d + 1, d + 1)).at[:d, :d].set(system.noise**2 * jnp.eye(d) + sigma**2 * B @ B.T)
    start = jnp.diag(jnp.append(jnp.full(d, system.start**2), 1.0))
    cost = jnp.zeros((d + 1, d + 1)).at[:d, :d].set(Q) + K @ R @ K.T

    def step(moments: Array, h: Array) -> tuple[Array, Array]:
        spent = (cost * moments).sum() + sigma**2 * jnp.trace(R)
        return F @ moments @ F.T + noise, gamma**h * spent

    return -jax.lax.scan(step, start, jnp.arange(horizon))[1].sum()


def gradient(system: System, params: Tree, sigma: Array | float, gamma: Array | float, horizon: int) -> Tree:
    """∇L(ξ)."""
    return jax.grad(objective, argnums=1)(system, params, sigma, gamma, horizon)


def curvature(system: System, sigma: Array | float, gamma: Array | float, horizon: int) -> Array:
    """‖∇²L(0)‖, the smoothness at the start of training."""
    shape = len(system.A) + 1, system.B.shape[1]
    value = lambda K: objective(system, {"mean": K.reshape(shape)}, sigma, gamma, horizon)
    return jnp.abs(jnp.linalg.eigvalsh(jax.hessian(value)(jnp.zeros(shape).ravel()))).max()


def optimum(system: System, gamma: float, horizon: int) -> Array:
    """L* over all policies, including time-dependent ones, by the Riccati recursion. Excludes the cost of exploration."""
    A, B, Q, R = (jnp.asarray(matrix) for matrix in system[:4])

    def backwards(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        V, constant = carry  # the cost-to-go is sᵀVs + constant
        gain = jnp.linalg.solve(R + gamma * B.T @ V @ B, gamma * B.T @ V @ A)
        return (Q + gamma * A.T @ V @ (A - B @ gain), gamma * (constant + system.noise**2 * jnp.trace(V))), None

    (V, constant), _ = jax.lax.scan(backwards, (jnp.zeros_like(Q), jnp.zeros(())), length=horizon)
    return -(system.start**2 * jnp.trace(V) + constant)
