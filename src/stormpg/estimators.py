"""Estimators of ∇L(ξ) from a batch of trajectories: REINFORCE, PGT and GPOMDP, on- and off-policy.

Write S_t = ∇log π_ξ(a_t|s_t) for the scores, w_h = Π_{t≤h} π_ξ(a_t|s_t) / π_ξ'(a_t|s_t) for the cumulative importance
weight of a trajectory sampled under ξ', and C_h = Σ_{t≤h} S_t. Each estimator is a sum over steps of

    a score sum  ·  ( a weighted signal  −  w_h · a baseline b_h )

| estimator | score sum | signal                     | equation                                |
|-----------|-----------|----------------------------|-----------------------------------------|
| GPOMDP    | C_h       | w_h γ^h r_h                | (5), and d_i^{ξ'}(ξ) of §3              |
| REINFORCE | C_{H−1}   | w_{H−1} R(τ), once         | (4)                                     |
| PGT       | S_h       | Σ_{k≥h} w_k γ^k r_k        | Sutton et al. 2000                      |

`gae` is the exception: S_h times an advantage made with a fitted value function V. It is biased, and so are the others with
`from_now`, which discounts rewards from the step that is scored, γ^{h−t}, instead of from the start, γ^h.

With w = 1 it is d_i(ξ). For every estimator the result is Σ_t c_t S_t with coefficients c_t that do not depend on the scores,
so one backward pass gives the mean over the batch.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from stormpg.baselines import baseline_of, check_baseline, from_other_groups, state_values
from stormpg.errors import InputError, choose
from stormpg.guards import Guard
from stormpg.kernels import running_sums
from stormpg.pytrees import Tree, as_float, record, static
from stormpg.scores import log_probs_in_blocks, score_sum, score_sums
from stormpg.trajectories import Trajectories, Weights, discounted, sums_to_come


@record
class Estimator:
    """The name of the estimator, its baseline and its discount."""

    gamma: Array
    name: str = static()
    baseline: str = static(default="time")
    weighting: str = static(default="cumulative")  # see `WEIGHTINGS`
    from_now: bool = static(default=False)  # discount from the step that is scored, not from the start
    lam: Array | None = None  # λ of `gae`
    guard: Guard | None = None  # see `guards`


# The steps whose ratios are multiplied in the weight of step h: up to h, all of the trajectory, or h alone, which ignores that
# the states were visited by another policy (the surrogate of trust-region methods).
WEIGHTINGS = ("cumulative", "trajectory", "step")


def gpomdp(
    gamma: float, baseline: str = "time", from_now: bool = False, *, weighting: str = "cumulative", guard: Guard | None = None
) -> Estimator:
    """GPOMDP (Baxter and Bartlett 2001), the paper's equation (5): b_h depends on the time h alone.

    `from_now`: rewards are discounted by γ^{h−t} instead of γ^h, so that late steps of long episodes count as much as early
    ones. For γ < 1 this is biased. `weighting`: "cumulative", "trajectory" or "step". `guard`: see `guards`.
    """
    return dataclasses.replace(_estimator("gpomdp", gamma, baseline, weighting, guard), from_now=from_now)


def reinforce(gamma: float, baseline: str = "time", *, weighting: str = "cumulative", guard: Guard | None = None) -> Estimator:
    """REINFORCE (Williams 1992), equation (4): every score times the whole return."""
    return _estimator("reinforce", gamma, baseline, weighting, guard)


def pgt(gamma: float, baseline: str = "time", *, weighting: str = "cumulative", guard: Guard | None = None) -> Estimator:
    """The policy gradient theorem's estimator (Sutton et al. 2000): every score times the return to come."""
    return _estimator("pgt", gamma, baseline, weighting, guard)


def gae(gamma: float, lam: float = 0.95) -> Estimator:
    """Generalised advantage estimation (Schulman et al. 2016): S_t Σ_{h≥t} (γλ)^{h−t} (r_h + γ V(s_{h+1}) − V(s_h)).

    V is linear in features of state and time and fitted to other trajectories. The estimate is biased: V has errors, rewards
    are discounted from t on, and importance weights are those of single steps. See docs/window-npg.md for how much.
    """
    if not isinstance(lam, jax.core.Tracer) and not 0 <= lam <= 1:
        raise InputError(f"lam is {lam}; expected a number in [0, 1].")
    made = dataclasses.replace(_estimator("pgt", gamma, "value"), name="gae", weighting="step", from_now=True)
    return dataclasses.replace(made, lam=as_float(lam))


def surrogate(estimator: Estimator) -> Estimator:
    """The gradient of mean Σ_t (π_ξ/π_ξ')(a_t|s_t) c_t, as used by trust-region methods. On-policy it is the same estimator.

    The weight is that of a single step, not of the trajectory. Off-policy it is therefore biased: the states are those of ξ'.
    """
    check_scalar(estimator)
    return dataclasses.replace(estimator, weighting="step")


def check_scalar(estimator: Estimator) -> None:
    """Raise InputError if the estimate is not the gradient of a surrogate objective.

    With one number b_{h,p} for each parameter p, component p is Σ_h b_{h,p} ∂_p ρ_h, ρ_h the weight of a step. Its Jacobian
    b_{h,p} ∂_q∂_p ρ_h is symmetric only if b_{h,p} is the same for all p. Otherwise no objective exists for the line search.
    """
    if estimator.baseline == "optimal":
        raise InputError(
            "the baseline 'optimal' has one value for each parameter, so no surrogate objective has its gradient, and "
            "trust-region steps (svrpo) cannot use it: use 'time' or 'none'."
        )


def _estimator(name: str, gamma: float, baseline: str, weighting: str = "cumulative", guard: Guard | None = None) -> Estimator:
    if not isinstance(gamma, jax.core.Tracer) and not 0 < gamma <= 1:
        raise InputError(f"gamma is {gamma}; expected a discount in (0, 1].")
    check_baseline(name, baseline)
    choose("weighting", weighting, WEIGHTINGS)
    return Estimator(as_float(gamma), name, baseline, weighting, guard=guard)


class Estimate(NamedTuple):
    gradient: Tree  # mean_i d_i^{ξ'}(ξ)
    weight: Array  # [n, H] w_h
    baseline: Any  # b_h, to be shared with the other term of a correction


def gradient(estimator: Estimator, policy: Any, params: Tree, trajectories: Trajectories) -> Tree:
    """mean_i d_i^{ξ'}(ξ), an unbiased estimate of ∇L(ξ). ξ is `params`, ξ' the parameters that sampled the trajectories."""
    return estimate(estimator, policy, params, trajectories).gradient


def estimate(
    estimator: Estimator,
    policy: Any,
    params: Tree,
    trajectories: Trajectories,
    baseline: Any = None,
    on_policy: bool = False,
    each: bool = False,
) -> Estimate:
    """As `gradient`, and also return the weights and the baseline.

    `baseline`: that of an earlier estimate on the same batch, so that both terms of a correction share it.
    `on_policy`: `params` sampled the batch, so that all weights are exactly 1 and are not computed.
    `each`: one gradient for each trajectory, with leaves [n, ...], instead of their mean.
    """
    n = trajectories.reward.shape[0]
    if on_policy:
        ratio = jnp.zeros_like(trajectories.log_prob)
    else:
        ratio = log_probs_in_blocks(policy, params, trajectories, keep=True) - trajectories.log_prob
    weights = guarded(estimator, Weights(jnp.exp(ratio), jnp.exp(running_sums(ratio))), trajectories)
    if baseline is None:
        baseline = _baseline(estimator, policy, params, trajectories)
    coefficient = coefficients(estimator, trajectories, weights, baseline)
    if each:
        if estimator.baseline == "optimal":
            raise InputError("the baseline 'optimal' has no gradient of each trajectory here: use 'time' or 'none'.")
        sums = score_sums(policy, params, trajectories, (coefficient * trajectories.mask)[None], n)
        return Estimate(jax.tree.map(lambda x: x[0], sums), weights.cumulative, baseline)
    total = score_sum(policy, params, trajectories, coefficient * trajectories.mask / n)
    if estimator.baseline == "optimal":
        total = _subtract_componentwise(estimator, policy, params, trajectories, weights.cumulative, baseline, total)
    return Estimate(total, weights.cumulative, baseline)


def guarded(estimator: Estimator, weights: Weights, trajectories: Trajectories) -> Weights:
    """The weights that the estimator uses: of its weighting, after its guard."""
    if estimator.weighting == "trajectory":
        weights = weights._replace(cumulative=jnp.broadcast_to(weights.cumulative[:, -1:], weights.cumulative.shape))
    if estimator.guard is None:
        return weights
    return Weights(*(estimator.guard.apply(x, trajectories.mask[:, :1]) for x in weights))


def coefficients(estimator: Estimator, trajectories: Trajectories, weights: Weights, baseline: Any) -> Array:
    """The coefficients c_t, [n, H], with mean_i d_i = mean_i Σ_t c_t S_t, without a componentwise baseline."""
    if estimator.weighting == "step":
        return weights.step * advantage(estimator, trajectories, jnp.ones_like(weights.step), baseline)
    return advantage(estimator, trajectories, weights.cumulative, baseline)


def window_coefficients(estimator: Estimator, trajectories: Trajectories, weights: Weights, age: Array) -> Array:
    """The coefficients c_t for a window of K batches, with baselines from the other groups: see `from_other_groups`.

    `age`, [K]: of the batches, for a value function. A baseline b_h is the mean signal under the weights. The sum over the
    window is not divided by its size.
    """
    weights = guarded(estimator, weights, trajectories)
    return coefficients(estimator, trajectories, weights, _window_baseline(estimator, trajectories, weights, age))


def _window_baseline(estimator: Estimator, trajectories: Trajectories, weights: Weights, age: Array) -> Any:
    if estimator.baseline == "none":
        return jnp.zeros_like(trajectories.reward)
    if estimator.name == "gae":
        return state_values(trajectories, _to_come(estimator, trajectories.reward), age)
    if estimator.baseline != "time":
        raise InputError(f"a window cannot use the baseline {estimator.baseline!r}: use 'time' or 'none'.")
    present = trajectories.mask[:, :1]
    weight = present * weights.of(estimator.weighting)
    signal = _signal(estimator, trajectories, jnp.ones_like(weight))
    above, below = (from_other_groups(x, len(age)) for x in (weight * signal, weight))
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1.0), 0.0)


def advantage(estimator: Estimator, trajectories: Trajectories, weight: Array, baseline: Any) -> Array:
    """The coefficients c_t, [n, H], for these weights w_h."""
    if estimator.name == "gae":
        ahead = jnp.pad(baseline[:, 1:], ((0, 0), (0, 1)))
        surprise = trajectories.mask * (trajectories.reward + estimator.gamma * ahead - baseline)
        assert estimator.lam is not None, "gae has a λ"
        return sums_to_come(surprise, estimator.gamma * estimator.lam)
    b = 0.0 if estimator.baseline in ("none", "optimal") else baseline
    term = _signal(estimator, trajectories, weight) - weight * b
    return term if estimator.name == "pgt" else _to_come(estimator, term)


def _signal(estimator: Estimator, trajectories: Trajectories, weight: Array) -> Array:
    """The weighted signal of each step, [n, H]."""
    reward = trajectories.reward if estimator.from_now else discounted(trajectories, estimator.gamma)
    if estimator.name == "gpomdp":
        return weight * reward
    if estimator.name == "pgt":
        return _to_come(estimator, weight * reward)
    return jnp.zeros_like(reward).at[:, -1].set(weight[:, -1] * reward.sum(axis=1))  # reinforce: R(τ), once


def _to_come(estimator: Estimator, x: Array) -> Array:
    """Σ_{k≥h} x_k. Summing x_h times the scores up to h equals summing the score of t times x from t on."""
    if estimator.from_now:
        return sums_to_come(x, estimator.gamma)
    return running_sums(x, backward=True)


def _baseline(estimator: Estimator, policy: Any, params: Tree, trajectories: Trajectories) -> Any:
    """b_h from the batch. Each trajectory gets it from the others, which keeps the estimate unbiased."""
    if estimator.name == "gae":
        return state_values(trajectories, _to_come(estimator, trajectories.reward), jnp.zeros(1))
    signal = _signal(estimator, trajectories, jnp.ones_like(trajectories.reward))
    return baseline_of(estimator.baseline, trajectories, signal, lambda: _score_sums(estimator, policy, params, trajectories))


def _score_sums(estimator: Estimator, policy: Any, params: Tree, trajectories: Trajectories) -> Array:
    """C_h, or S_h for PGT, for every trajectory and step, flat: [n, H, parameters]."""

    def score(observation: Array, action: Array, mask: Array) -> Array:
        return mask * ravel_pytree(jax.grad(policy.log_prob)(params, observation, action))[0]

    scores = jax.vmap(jax.vmap(score))(trajectories.observation, trajectories.action, trajectories.mask)
    return scores if estimator.name == "pgt" else jnp.cumsum(scores, axis=1)


def _subtract_componentwise(
    estimator: Estimator,
    policy: Any,
    params: Tree,
    trajectories: Trajectories,
    weight: Array,
    baseline: Array,
    total: Tree,
) -> Tree:
    """total − mean_i Σ_h w_h · (score sum) ∘ b_h, with one b_h for each parameter."""
    flat, unravel = ravel_pytree(total)
    sums = _score_sums(estimator, policy, params, trajectories)
    return unravel(flat - jnp.einsum("nh,nhp,nhp->p", weight, sums, baseline, precision="highest") / weight.shape[0])
