"""The adviser: measures a problem with a pilot batch at ξ_0 and derives settings from the result.

By theory: Corollary 1 with the paper's bounds, as stated (L_d) and as proved (C_γ), and with constants measured at ξ_0.

In practice, without L_d: η is chosen for Adam, whose first step is η · sign(g), so that the KL divergence of that step is
TRUST. Let V be E‖d^{ξ'}(ξ) − d(ξ')‖² over such a step and σ² = Var d. By Lemma 4 the error settles near (ασ² + V/α)/B. The
minimum is 2ασ²/B, at α = √V/σ. S0 and B are chosen so that the first error and this one equal ‖∇L(ξ_0)‖².
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from optax.tree_utils import tree_vdot

from stormpg import estimators
from stormpg.envs import AnyEnvironment, Environment
from stormpg.envs.chain import chain_tables
from stormpg.estimators import Estimator, estimate
from stormpg.pytrees import Tree, add, norm
from stormpg.sampling import rollout
from stormpg.theory import tabular
from stormpg.theory.bounds import Constants, Prescription, admissible, corollary, prescriptions
from stormpg.trajectories import Trajectories, discounted

TRUST = 0.01  # KL divergence of one update, in nats per environment step
STEPS = 1000  # number of steps of the pilot batch at which scores are computed
CURVATURES = 50  # number of these steps at which the Hessian of log π is computed
SMALLEST, LARGEST = 2, 100  # limits on batch sizes


class Pilot(NamedTuple):
    """The quantities measured at ξ_0."""

    trajectories: int
    R: float  # the largest absolute reward
    M: float  # the largest norm of a score
    N: float  # the largest absolute eigenvalue of the Hessian of log π
    value: float  # L(ξ_0)
    gap: float  # an upper bound of L* − L(ξ_0)
    sigma2: float  # Var d
    signal: float  # ‖∇L‖², corrected for sampling noise; may be negative if the noise dominates
    eta: float  # step size of a sign step (Adam's first step) with divergence TRUST
    difference: float  # E‖d^{ξ'}(ξ) − d(ξ')‖² over such a step
    distance: float  # the squared length of that step
    phi2: float  # variance of the importance weight of a whole trajectory over that step
    exact: tuple[str, ...] = ()  # names of the fields that were computed exactly, not sampled

    @property
    def ratio(self) -> float:
        """The measured value of Lemma 3's constant."""
        return self.difference / self.distance


def pilot(env: AnyEnvironment, policy: Any, gamma: float, n: int, horizon: int, seed: int = 0) -> Pilot:
    """Sample n trajectories at ξ_0 and measure the problem."""
    estimator = estimators.gpomdp(gamma)
    first, key = policy.init(jax.random.key(seed)), jax.random.key(seed + 1)
    if not env.in_jax:
        batch = rollout(env, policy, first, key, n, horizon)
    else:
        batch = jax.jit(lambda params, key: rollout(env, policy, params, key, n, horizon))(first, key)
    b = estimate(estimator, policy, first, batch, on_policy=True).baseline
    d = jax.jit(lambda params: per_trajectory(estimator, policy, params, batch, b)[0])(first)
    sigma2 = float(d.var(axis=0, ddof=1).sum())
    mean, unravel = d.mean(axis=0), ravel_pytree(first)[1]
    direction = unravel(jnp.sign(mean))
    M, N, slope = at_steps(policy, first, direction, batch)
    eta = math.sqrt(2 * TRUST / slope) if slope > 0 else 0.01
    moved = add(first, direction, eta)
    other, weight = jax.jit(lambda params: per_trajectory(estimator, policy, params, batch, b))(moved)
    value = float(discounted(batch, gamma).sum(axis=1).mean())
    highest = float((batch.reward * batch.mask).max()) * float(np.sum(gamma ** np.arange(horizon)))
    found = Pilot(
        trajectories=n,
        R=float(jnp.abs(batch.reward).max()),
        M=M,
        N=N,
        value=value,
        gap=max(highest - value, 0.0),
        sigma2=sigma2,
        signal=float((mean**2).sum()) - sigma2 / n,
        eta=eta,
        difference=float(((other - d) ** 2).sum(axis=1).mean()),
        distance=eta**2 * float(tree_vdot(direction, direction)),
        phi2=float(weight[:, -1].var(ddof=1)),
    )
    return with_exact_parts(found, env, first, moved, gamma, horizon, jnp.mean(b, axis=0))


def per_trajectory(estimator: Estimator, policy: Any, params: Tree, batch: Trajectories, b: Array) -> tuple[Array, Array]:
    """Return d^{ξ_0}(ξ) of each single trajectory, flattened to [n, parameters], and its weights, [n, H]."""

    def one(pair: tuple[Trajectories, Array]) -> tuple[Array, Array]:
        alone, baseline = jax.tree.map(lambda x: x[None], pair)
        found = estimate(estimator, policy, params, alone, baseline)
        return ravel_pytree(found.gradient)[0], found.weight[0]

    return cast(tuple[Array, Array], jax.lax.map(one, (batch, jnp.broadcast_to(b, batch.reward.shape))))


def at_steps(policy: Any, params: Tree, direction: Tree, batch: Trajectories) -> tuple[float, float, float]:
    """Return the largest score, the largest Hessian of log π and the mean of (score · direction)² over a subset of steps."""
    live = np.argwhere(np.asarray(batch.mask) > 0)
    chosen = live[np.linspace(0, len(live) - 1, min(STEPS, len(live))).astype(int)]
    observation, action = (np.asarray(x)[chosen[:, 0], chosen[:, 1]] for x in (batch.observation, batch.action))
    score: Callable[..., Tree] = jax.grad(policy.log_prob)

    def size_and_slope(s: Array, a: Array) -> tuple[Array, Array]:
        found = score(params, s, a)
        return norm(found), tree_vdot(found, direction)

    def curvature(pair: tuple[Array, Array]) -> Array:
        """Return the norm of the Hessian at one step, by power iteration with Hessian-vector products."""
        s, a = pair
        times: Callable[[Tree], Tree] = lambda v: jax.jvp(lambda p: score(p, s, a), (params,), (v,))[1]
        unit: Callable[[Tree], Tree] = lambda v: jax.tree.map(lambda x: x / jnp.maximum(norm(v), 1e-30), v)
        start = unit(jax.tree.map(lambda x: jnp.ones_like(x) + 0.1 * jnp.arange(x.size).reshape(x.shape) % 0.7, params))
        return norm(times(jax.lax.fori_loop(0, 30, lambda _, v: unit(times(v)), start)))

    sizes, slopes = jax.jit(jax.vmap(size_and_slope))(observation, action)
    some = slice(None, None, max(1, len(chosen) // CURVATURES))
    largest = jax.jit(lambda s, a: jax.lax.map(curvature, (s, a)).max())(observation[some], action[some])
    return float(sizes.max()), float(largest), float((slopes**2).mean())


def with_exact_parts(
    found: Pilot, env: AnyEnvironment, first: Tree, moved: Tree, gamma: float, horizon: int, b: Array
) -> Pilot:
    """Replace sampled values by exact ones if the environment is `chain`, which is small enough to compute them."""
    if not isinstance(env, Environment) or env.name != "chain":
        return found
    tables = chain_tables(**env.settings)
    b = jnp.broadcast_to(b, (horizon,))
    value = float(tabular.objective(tables, first, gamma, horizon))
    difference = tabular.difference_moments(tables, first, moved, gamma, horizon, b)
    known: dict[str, Any] = {
        "R": float(np.abs(tables.R).max()),
        "value": value,
        "gap": float(tabular.optimum(tables, gamma, horizon)) - value,
        "sigma2": float(tabular.estimate_moments(tables, first, gamma, horizon, b).variance),
        "signal": float(tree_vdot(*[tabular.gradient(tables, first, gamma, horizon)] * 2)),
        "difference": float(difference.square),
        "phi2": float(tabular.weight_variance(tables, first, moved, horizon)[-1]),
    }
    return found._replace(**known, exact=tuple(known))


def constants_of(found: Pilot, gamma: float, horizon: int) -> Constants:
    """The paper's constants, with the values of the pilot."""
    return Constants(found.R, found.M, found.N, found.sigma2, found.phi2, found.gap, gamma, horizon)


def by_theory(found: Pilot, epsilon: float, gamma: float, horizon: int) -> dict[str, dict[str, Prescription]]:
    """Return the prescriptions by variant and method: Corollary 1 as stated, as proved, and with measured constants."""
    constants = constants_of(found, gamma, horizon)
    sigma2, gap = found.sigma2, max(found.gap, 1e-12)
    proved, smoothness = math.sqrt(constants.difference(printed=False)), constants.smoothness
    # E‖d^{ξ'}(ξ) − d(ξ')‖² is at least ‖∇L(ξ) − ∇L(ξ')‖², so its root is used as the smoothness too.
    local = math.sqrt(found.ratio)
    made = {"proved": prescriptions(epsilon, sigma2, gap, proved, smoothness)}
    if constants.L_d < math.inf:
        made["stated"] = {"storm-pg": corollary(epsilon, sigma2, gap, constants.L_d)}
    return made | {"measured": prescriptions(epsilon, sigma2, gap, local, local)}


def trusted(chosen: Prescription, C_gamma: float) -> bool:
    """Whether αB ≥ 4C_γ²η², up to rounding errors."""
    return chosen.alpha is None or admissible(chosen.alpha, chosen.B or 1, chosen.eta * (1 - 1e-9), C_gamma)


def in_practice(found: Pilot) -> dict[str, Any]:
    """Return S0, B, α and η for STORM-PG with Adam, from the pilot alone."""
    alpha = min(max(math.sqrt(found.difference / found.sigma2), 0.05), 1.0) if found.sigma2 > 0 else 1.0
    share = found.sigma2 / found.signal if found.signal > 0 else math.inf
    S0 = round(min(max(share, 5), LARGEST))
    B = round(min(max(2 * alpha * share, SMALLEST), S0))
    return {"eta": float(f"{found.eta:.3g}"), "alpha": float(f"{alpha:.3g}"), "S0": S0, "B": B, "optimizer": "adam"}
