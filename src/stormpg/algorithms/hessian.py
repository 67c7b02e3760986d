"""Successors of STORM-PG that correct by Hessian-vector products, or sample at an extrapolated point. See docs/family.md."""

import math

from stormpg import rates, schedules, steps, trackers
from stormpg.algorithms.momentum import weighted_by_trajectory
from stormpg.algorithms.registry import Algorithm, algorithm
from stormpg.estimators import gpomdp


@algorithm("ha-mbpg")
def ha_mbpg(
    eta: float = 0.01,
    c: float = 1e4,
    w: float = 1.0,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    factor: float = 1.0,
    floor: float = 0.0,
    weight_low: float = 0.0,
    weight_high: float = math.inf,
) -> Algorithm:
    """HA-MBPG (Huang et al. 2020): as IS-MBPG, with Hessian-vector products on a batch between ξ_{t−1} and ξ_t.

    The authors' program: factor=5, floor=0.3, weights between weight_low=0.8 and weight_high=1.2.
    """
    tracker = trackers.follow(transport=trackers.hessian("same"), rates=rates.accumulated(eta, w, c, low=floor, factor=factor))
    estimator = weighted_by_trajectory(gamma, baseline, weight_low, weight_high)
    return Algorithm(estimator, tracker, schedules.once(B, B), steps.optax_step(1.0, "sgd"))


@algorithm("hapg")
def hapg(eta: float = 0.05, S0: int = 25, B: int = 5, m: int = 3, gamma: float = 0.99, baseline: str = "time") -> Algorithm:
    """HAPG (Shen et al. 2019): epochs of S0 trajectories and m steps with Hessian-vector products; steps of length η."""
    tracker = trackers.follow(0.0, trackers.hessian("none"))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.every(m, S0, B), steps.normalised(eta))


@algorithm("sharp")
def sharp(eta: float = 0.3, alpha: float = 1.0, B: int = 5, gamma: float = 0.99, baseline: str = "time") -> Algorithm:
    """SHARP (Salehkaleybar et al. 2022): Hessian-vector products, α_t = α t^{−⅔} and steps of length η t^{−⅔}."""
    tracker = trackers.follow(transport=trackers.hessian(), rates=rates.powers(alpha, 2 / 3, 2 / 3, 1.0))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(B, B), steps.normalised(eta))


@algorithm("harpg")
def harpg(eta: float = 0.001, B: int = 5, gamma: float = 0.99, baseline: str = "time") -> Algorithm:
    """HARPG (Fatkhullin et al. 2023): Hessian-vector products, α_t = 2/(t + 2) and η_t = η (2/(t + 2))^½."""
    tracker = trackers.follow(transport=trackers.hessian(), rates=rates.powers(1.0, 1.0, 1 / 2))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(B, B), steps.optax_step(eta, "sgd"))


@algorithm("n-harpg")
def n_harpg(eta: float = 0.3, B: int = 5, gamma: float = 0.99, baseline: str = "time") -> Algorithm:
    """N-HARPG (Fatkhullin et al. 2023): as HARPG, with steps of length η · 2/(t + 2)."""
    tracker = trackers.follow(transport=trackers.hessian(), rates=rates.powers(1.0, 1.0, 1.0))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(B, B), steps.normalised(eta))


@algorithm("n-pg-igt")
def n_pg_igt(eta: float = 0.3, B: int = 5, gamma: float = 0.99, baseline: str = "time") -> Algorithm:
    """N-PG-IGT (Fatkhullin et al. 2023): sampled at an extrapolated point; α_t = (2/(t + 2))^⅘, steps of length 2η/(t + 2)."""
    tracker = trackers.follow(transport=trackers.Extrapolated(), rates=rates.powers(1.0, 4 / 5, 1.0))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(B, B), steps.normalised(eta))
