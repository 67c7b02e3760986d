"""Successors of STORM-PG with a rule for α_t and η_t, or with another way to use the correction. See docs/family.md."""

import math

from stormpg import guards, rates, schedules, steps, trackers
from stormpg.algorithms.registry import Algorithm, algorithm
from stormpg.contract import Step
from stormpg.estimators import Estimator, gpomdp
from stormpg.rates import Rates


def weighted_by_trajectory(gamma: float, baseline: str, weight_low: float, weight_high: float) -> Estimator:
    """GPOMDP with the weight of the whole trajectory, between two bounds."""
    return gpomdp(gamma, baseline, weighting="trajectory", guard=guards.clip(weight_low, weight_high))


def _is_mbpg(estimator: Estimator, B: int, rule: Rates, largest: float) -> Algorithm:
    step: Step = steps.optax_step(1.0, "sgd")
    step = step if math.isinf(largest) else steps.clipped(step, largest)
    return Algorithm(estimator, trackers.follow(rates=rule), schedules.once(B, B), step)


@algorithm("is-mbpg")
def is_mbpg(
    eta: float = 0.01,
    c: float = 1e4,
    w: float = 1.0,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    factor: float = 1.0,
    floor: float = 0.0,
    weight_high: float = math.inf,
    largest: float = math.inf,
) -> Algorithm:
    """IS-MBPG (Huang et al. 2020): STORM-PG with η_t = η/(w + Σ‖d_i‖²)^⅓ and α_{t+1} = c η_t².

    The authors' program: factor=5 on the sum, floor=0.3 of α, weight_high=1.2, and components of at most largest=0.05.
    """
    rule = rates.accumulated(eta, w, c, low=floor, factor=factor)
    return _is_mbpg(weighted_by_trajectory(gamma, baseline, 0.0, weight_high), B, rule, largest)


@algorithm("is-mbpg-star")
def is_mbpg_star(
    eta: float = 0.01,
    c: float = 1e4,
    w: float = 1.0,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    factor: float = 1.0,
    floor: float = 0.0,
    weight_high: float = math.inf,
    largest: float = math.inf,
) -> Algorithm:
    """IS-MBPG* (Huang et al. 2020): as IS-MBPG, with η_t = η/(w + t)^⅓. The authors' program: factor=0.03 on t."""
    rule = rates.accumulated(eta, w, c, low=floor, factor=factor, counts=True)
    return _is_mbpg(weighted_by_trajectory(gamma, baseline, 0.0, weight_high), B, rule, largest)


@algorithm("bgpo")
def bgpo(
    eta: float = 0.01,
    k: float = 1.0,
    c: float = 0.5,
    w: float = 1.0,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    mirror: str = "diagonal",
    norm: float = 2.0,
) -> Algorithm:
    """BGPO (Huang, Gao, Huang 2022): a mirror step of size η along a mean of gradients; α_{t+1} = c s_t, s_t = k/(w + t)^½.

    `mirror`: "euclidean", "diagonal" or "p-norm" (p is `norm`). The parameters move by the share s_t towards the mirror step.
    The paper writes λ for η, and η_t for s_t.
    """
    tracker = trackers.follow(transport=trackers.Nothing(), rates=rates.accumulated(k, w, c, 1 / 2, e=1, counts=True))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(B, B), steps.mirror(eta, mirror, norm))


@algorithm("vr-bgpo")
def vr_bgpo(
    eta: float = 0.01,
    k: float = 1.0,
    c: float = 0.5,
    w: float = 1.0,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    mirror: str = "diagonal",
    norm: float = 2.0,
    weight_low: float = 0.0,
    weight_high: float = math.inf,
) -> Algorithm:
    """VR-BGPO (Huang, Gao, Huang 2022): BGPO with STORM's correction, α_{t+1} = c s_t², s_t = k/(w + t)^⅓.

    The authors' program has α of at least 0.3 and weights of single steps between weight_low=0.2 and weight_high=1.2.
    """
    estimator = weighted_by_trajectory(gamma, baseline, weight_low, weight_high)
    tracker = trackers.follow(rates=rates.accumulated(k, w, c, counts=True))
    return Algorithm(estimator, tracker, schedules.once(B, B), steps.mirror(eta, mirror, norm))


@algorithm("storm-plus")
def storm_plus(eta: float = 0.1, S0: int = 10, B: int = 5, gamma: float = 0.99, baseline: str = "time") -> Algorithm:
    """STORM+ (Levy, Kavis, Cevher 2021) for policies: α_{t+1} = (1 + Σ‖d_i‖²)^{−⅔}, η_t = η (Σ‖g_i‖²/α_{i+1})^{−⅓}.

    The paper's η is 1: it has no constants.
    """
    tracker = trackers.follow(rates=rates.storm_plus())
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(S0, B), steps.optax_step(eta, "sgd"))


@algorithm("meta-storm")
def meta_storm(
    eta: float = 0.1,
    power: float = 0.25,
    a0: float = 1.0,
    b0: float = 1.0,
    norms: bool = False,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
) -> Algorithm:
    """META-STORM (Liu et al. 2022) for policies: α from how much estimates at the same point differ between batches.

    `norms`: from the norms of the estimates instead (META-STORM-SG).
    """
    tracker = trackers.follow(rates=rates.meta_storm(power, a0, b0, norms))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(S0, B), steps.optax_step(eta, "sgd"))


@algorithm("mars-pg")
def mars_pg(
    eta: float = 0.01,
    alpha: float = 0.05,
    scale: float = 0.025,
    radius: float = 1.0,
    exact: bool = True,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
) -> Algorithm:
    """MARS (Yuan et al. 2025) for policies: STORM's correction, scaled by `scale` and shortened to `radius`.

    `exact=False`: the correction is d(ξ_t) − d(ξ_{t−1}) of different batches, the authors' default. The step divides g_t by the
    root of the mean of its squares; the authors' program uses the squares of the corrected estimate instead.
    """
    transport = trackers.weighted() if exact else trackers.Difference()
    tracker = trackers.follow(alpha, transport, scale=scale, radius=radius)
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(S0, B), steps.mirror(eta, "diagonal"))
