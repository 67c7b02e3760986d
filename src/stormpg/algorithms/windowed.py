"""Algorithms that keep the last K batches: the default of the library, and RT-PG."""

import dataclasses

from stormpg import schedules, steps, trackers
from stormpg.algorithms.registry import Algorithm, Optimizer, algorithm
from stormpg.estimators import gae
from stormpg.estimators import gpomdp as gpomdp_estimator
from stormpg.pytrees import Aside

STRIDE = 4  # the divergence of policies is measured on every fourth time step
PER_STEP = 0.025  # nats: with κ alone, policies of short episodes would change too much in one step
LONG = 100.0  # a step size at which the trust region sets the length of a step
# Starts near a policy that ignores the state, and keeps σ large for long: what has not been tried cannot be learned. If nothing
# clips the actions, large ones may cost any amount, and σ would shrink before anything else is learned: it is slower there.
EXPLORING = {
    **{"learn_sigma": True, "sigma_step": 0.005, "output_scale": 0.01, "normalise": "large"},
    "clipped": {"censored": True, "sigma_step": 0.02, "sigma_batch": 600},
}


@algorithm("window-npg")
def window_npg(
    K: int = 16,
    B: int = 3,
    gamma: float = 0.99,
    lam: float = 0.95,
    critic_share: float = 0.3,
    kappa: float = 2.0,
    delta: float = 0.2,
    damping: float = 0.1,
) -> Algorithm:
    """Windowed natural policy gradient, the default: the last K batches of B trajectories, and a trust region.

    Each step is along (F + damping)⁻¹ g_t, with g_t and F from the whole window, see `trackers.blend` and `steps.within`. g_t
    mixes GPOMDP, discounted from each step on, with GAE(λ) (`lam`), whose prior share is `critic_share`. The policy moves by at
    most max(min(κ/L, 0.025), δ n/1000) nats a step (`kappa`, `delta`), L the mean length of an episode and n the number of new
    steps, and by less if g_t is mostly noise.
    """
    made = Algorithm(
        gpomdp_estimator(gamma, from_now=True),
        trackers.blend(K, gae(gamma, lam), critic_share),
        schedules.always(B),
        steps.within(steps.natural(LONG, damping, STRIDE), kappa, delta, STRIDE, PER_STEP),
    )
    return dataclasses.replace(made, policy=Aside(EXPLORING))


@algorithm("rt-pg")
def rt_pg(
    eta: float = 0.01,
    K: int = 8,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
) -> Algorithm:
    """RT-PG (Montenegro et al. 2026): the last K batches, each with power-mean weights, see `trackers.reused`."""
    step = steps.optax_step(eta, optimizer)
    return Algorithm(gpomdp_estimator(gamma, baseline), trackers.reused(K), schedules.always(B), step)
