"""A second implementation of the paper's algorithms: simple float64 NumPy loops that follow the text.

The policy is that of §2.3 with two action dimensions: a ~ N(ξᵀψ(s), σ²), ψ(s) = s. ξ is a matrix. No code is shared with
the library.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SIGMA = 0.8


class Tau(NamedTuple):
    """One trajectory: states [H, d], actions [H, k], rewards [H], without padding."""

    s: np.ndarray
    a: np.ndarray
    r: np.ndarray


def log_pi(xi: np.ndarray, s: np.ndarray, a: np.ndarray) -> float:
    total = 0.0
    for k in range(len(a)):
        total += -((xi[:, k] @ s - a[k]) ** 2) / (2 * SIGMA**2) - np.log(np.sqrt(2 * np.pi * SIGMA**2))
    return total


def score(xi: np.ndarray, s: np.ndarray, a: np.ndarray) -> np.ndarray:
    slope = np.zeros_like(xi)
    for k in range(len(a)):
        slope[:, k] = (a[k] - xi[:, k] @ s) * s / SIGMA**2
    return slope


def baseline(batch: Sequence[Tau], i: int, h: int, gamma: float) -> float:
    """b_h of trajectory i: the mean of γ^h r_h over the other trajectories, with r_h = 0 after their end."""
    others = [tau.r[h] if h < len(tau.r) else 0.0 for j, tau in enumerate(batch) if j != i]
    return gamma**h * float(np.mean(others)) if others else 0.0


def d(xi: np.ndarray, sampler: np.ndarray, batch: Sequence[Tau], horizon: int, gamma: float) -> np.ndarray:
    """(1/|B|) Σ_i d_i^{sampler}(ξ): equation (5), with the weight p(τ_h|ξ)/p(τ_h|sampler) on each term."""
    total = np.zeros_like(xi)
    for i, tau in enumerate(batch):
        scores, weight = np.zeros_like(xi), 1.0
        for h in range(horizon):
            if h < len(tau.r):
                scores = scores + score(xi, tau.s[h], tau.a[h])
                weight *= np.exp(log_pi(xi, tau.s[h], tau.a[h]) - log_pi(sampler, tau.s[h], tau.a[h]))
            reward = gamma**h * tau.r[h] if h < len(tau.r) else 0.0
            total = total + weight * scores * (reward - baseline(batch, i, h, gamma))
    return total / len(batch)


def storm_pg(xi, batches, eta, alpha, horizon, gamma):
    """Algorithm 1. `batches`: the S0 trajectories, then one small batch for each t. Yields ξ_1, ξ_2, ..."""
    g = d(xi, xi, batches[0], horizon, gamma)
    for batch in batches[1:]:
        new = xi + eta * g
        yield new
        g = (1 - alpha) * (g - d(xi, new, batch, horizon, gamma)) + d(new, new, batch, horizon, gamma)
        xi = new
    yield xi + eta * g


def svrpg(xi, batches, eta, m, horizon, gamma):
    """Snapshots (ξ̃, g̃), each followed by m steps with g_t = d(ξ_t) − d^{ξ_t}(ξ̃) + g̃, equation (7)."""
    for start in range(0, len(batches), m + 1):
        snapshot, mu = xi, d(xi, xi, batches[start], horizon, gamma)
        xi = xi + eta * mu
        yield xi
        for batch in batches[start + 1 : start + 1 + m]:
            g = d(xi, xi, batch, horizon, gamma) - d(snapshot, xi, batch, horizon, gamma) + mu
            xi = xi + eta * g
            yield xi


def srvr_pg(xi, batches, eta, m, horizon, gamma):
    """A large batch, then m recursive steps g_{t+1} = d(ξ_{t+1}) − d^{ξ_{t+1}}(ξ_t) + g_t, equation (8)."""
    for start in range(0, len(batches), m + 1):
        g = d(xi, xi, batches[start], horizon, gamma)
        before, xi = xi, xi + eta * g
        yield xi
        for batch in batches[start + 1 : start + 1 + m]:
            g = d(xi, xi, batch, horizon, gamma) - d(before, xi, batch, horizon, gamma) + g
            before, xi = xi, xi + eta * g
            yield xi
