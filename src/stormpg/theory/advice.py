"""The adviser: what a pilot batch at ξ_0 says of a problem, and the settings that follow from it.

By theory: Corollary 1 with the paper's bounds, as stated (L_d) and as proved (C_γ), and with constants as measured at ξ_0.

In practice, without L_d: a step whose divergence is TRUST, for Adam, whose first step is η · sign(g). Let V be
E‖d^{ξ'}(ξ) − d(ξ')‖² over such a step, σ² = Var d. By Lemma 4 the error settles near (ασ² + V/α)/B, which is least at
α = √V/σ, where it is 2ασ²/B. S0 and B make the first error and that one as large as ‖∇L(ξ_0)‖².
"""

import math
from typing import Any, NamedTuple

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
from stormpg.records import Tree, add, norm
from stormpg.sampling import rollout
from stormpg.theory import tabular
from stormpg.theory.bounds import Constants, Prescription, admissible, corollary, prescriptions
from stormpg.trajectories import Trajectories, discounted

TRUST = 0.01  # the divergence of a step, in nats for a step of the environment
STEPS = 1000  # of the pilot at which scores are looked at
CURVATURES = 50  # of these, at which the Hessian of log π is
SMALLEST, LARGEST = 2, 100  # batches


class Pilot(NamedTuple):
    """What was seen at ξ_0."""

    trajectories: int
    R: float  # the largest reward in size
    M: float  # the largest score
    N: float  # the largest eigenvalue of the Hessian of log π in size
    value: float  # L(ξ_0)
    gap: float  # a bound of L* − L(ξ_0)
    sigma2: float  # Var d
    signal: float  # ‖∇L‖², less what the noise adds; below 0 where there is nothing but noise
    eta: float  # of a step of Adam's kind with divergence TRUST
    difference: float  # E‖d^{ξ'}(ξ) − d(ξ')‖² over such a step ...
    distance: float  # ... and its squared length
    phi2: float  # Var of a whole trajectory's weight over it
    exact: tuple[str, ...] = ()  # those of the above that were computed, not sampled

    @property
    def ratio(self) -> float:
        """Lemma 3's constant, as measured."""
        return self.difference / self.distance


def pilot(env: AnyEnvironment, policy: Any, gamma: float, n: int, horizon: int, seed: int = 0) -> Pilot:
    """Sample n trajectories at ξ_0 and measure."""
    estimator = estimators.gpomdp(gamma)
    first, key = policy.init(jax.random.key(seed)), jax.random.key(seed + 1)
    if not env.in_jax:
        batch = rollout(env, policy, first, key, n, horizon)
    else:
        batch = jax.jit(lambda params, key: rollout(env, policy, params, key, n, horizon))(first, key)
    b = estimate(estimator, policy, first, batch, on_policy=True).baseline
    d = jax.jit(lambda params: each(estimator, policy, params, batch, b)[0])(first)
    sigma2 = float(d.var(axis=0, ddof=1).sum())
    mean, unravel = d.mean(axis=0), ravel_pytree(first)[1]
    towards = unravel(jnp.sign(mean))
    M, N, slope = at_steps(policy, first, towards, batch)
    eta = math.sqrt(2 * TRUST / slope) if slope > 0 else 0.01
    other, weight = jax.jit(lambda params: each(estimator, policy, params, batch, b))(add(first, towards, eta))
    value = float(discounted(batch, gamma).sum(axis=1).mean())
    most = float((batch.reward * batch.mask).max()) * float(np.sum(gamma ** np.arange(horizon)))
    found = Pilot(
        trajectories=n,
        R=float(jnp.abs(batch.reward).max()),
        M=M,
        N=N,
        value=value,
        gap=max(most - value, 0.0),
        sigma2=sigma2,
        signal=float((mean**2).sum()) - sigma2 / n,
        eta=eta,
        difference=float(((other - d) ** 2).sum(axis=1).mean()),
        distance=eta**2 * float(tree_vdot(towards, towards)),
        phi2=float(weight[:, -1].var(ddof=1)),
    )
    return with_exact_parts(found, env, first, add(first, towards, eta), gamma, horizon, jnp.mean(b, axis=0))


def each(estimator: Estimator, policy: Any, params: Tree, batch: Trajectories, b: Array) -> tuple[Array, Array]:
    """d^{ξ_0}(ξ) of every trajectory by itself, flat: [n, parameters], and its weights, [n, H]."""

    def one(pair: tuple[Trajectories, Array]) -> tuple[Array, Array]:
        alone, baseline = jax.tree.map(lambda x: x[None], pair)
        found = estimate(estimator, policy, params, alone, baseline)
        return ravel_pytree(found.gradient)[0], found.weight[0]

    return jax.lax.map(one, (batch, jnp.broadcast_to(b, batch.reward.shape)))


def at_steps(policy: Any, params: Tree, towards: Tree, batch: Trajectories) -> tuple[float, float, float]:
    """Over some of the steps: the largest score, the largest Hessian of log π, and the mean of (score · direction)²."""
    live = np.argwhere(np.asarray(batch.mask) > 0)
    chosen = live[np.linspace(0, len(live) - 1, min(STEPS, len(live))).astype(int)]
    observation, action = (np.asarray(x)[chosen[:, 0], chosen[:, 1]] for x in (batch.observation, batch.action))
    score = lambda params, s, a: jax.grad(policy.log_prob)(params, s, a)

    def of(s: Array, a: Array) -> tuple[Array, Array]:
        found = score(params, s, a)
        return norm(found), tree_vdot(found, towards)

    def curvature(pair: tuple[Array, Array]) -> Array:
        """By power iteration on products with the Hessian."""
        s, a = pair
        times = lambda v: jax.jvp(lambda p: score(p, s, a), (params,), (v,))[1]
        unit = lambda v: jax.tree.map(lambda x: x / jnp.maximum(norm(v), 1e-30), v)
        start = unit(jax.tree.map(lambda x: jnp.ones_like(x) + 0.1 * jnp.arange(x.size).reshape(x.shape) % 0.7, params))
        return norm(times(jax.lax.fori_loop(0, 30, lambda _, v: unit(times(v)), start)))

    sizes, slopes = jax.jit(jax.vmap(of))(observation, action)
    some = slice(None, None, max(1, len(chosen) // CURVATURES))
    largest = jax.jit(lambda s, a: jax.lax.map(curvature, (s, a)).max())(observation[some], action[some])
    return float(sizes.max()), float(largest), float((slopes**2).mean())


def with_exact_parts(
    found: Pilot, env: AnyEnvironment, first: Tree, moved: Tree, gamma: float, horizon: int, b: Array
) -> Pilot:
    """`chain` is small enough to know: its numbers replace the sampled ones."""
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
    return Constants(found.R, found.M, found.N, found.sigma2, found.phi2, found.gap, gamma, horizon)


def by_theory(found: Pilot, epsilon: float, gamma: float, horizon: int) -> dict[str, dict[str, Prescription]]:
    """What theories prescribe, by variant and method: Corollary 1 as stated, as proved, and with measured constants."""
    constants = constants_of(found, gamma, horizon)
    sigma2, gap = found.sigma2, max(found.gap, 1e-12)
    proved, smoothness = math.sqrt(constants.difference(printed=False)), constants.smoothness
    # E‖d^{ξ'}(ξ) − d(ξ')‖² is at least ‖∇L(ξ) − ∇L(ξ')‖², so that its root stands for the smoothness too.
    local = math.sqrt(found.ratio)
    made = {"proved": prescriptions(epsilon, sigma2, gap, proved, smoothness)}
    if constants.L_d < math.inf:
        made["stated"] = {"storm-pg": corollary(epsilon, sigma2, gap, constants.L_d)}
    return made | {"measured": prescriptions(epsilon, sigma2, gap, local, local)}


def trusted(chosen: Prescription, C_gamma: float) -> bool:
    """Whether αB ≥ 4C_γ²η²; rounding apart."""
    return chosen.alpha is None or admissible(chosen.alpha, chosen.B or 1, chosen.eta * (1 - 1e-9), C_gamma)


def in_practice(found: Pilot) -> dict[str, Any]:
    """S0, B, α and η for STORM-PG with Adam, from the pilot alone."""
    alpha = min(max(math.sqrt(found.difference / found.sigma2), 0.05), 1.0) if found.sigma2 > 0 else 1.0
    share = found.sigma2 / found.signal if found.signal > 0 else math.inf
    S0 = round(min(max(share, 5), LARGEST))
    B = round(min(max(2 * alpha * share, SMALLEST), S0))
    return {"eta": float(f"{found.eta:.3g}"), "alpha": float(f"{alpha:.3g}"), "S0": S0, "B": B, "optimizer": "adam"}
