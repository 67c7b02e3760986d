"""Successors of SRVR-PG and STORM-PG that change the batches, where they are sampled, or the step. See docs/family.md."""

from stormpg import schedules, steps, trackers
from stormpg.algorithms.registry import Algorithm, Optimizer, algorithm
from stormpg.estimators import gpomdp, reinforce
from stormpg.schedules import Schedule


@algorithm("page-pg")
def page_pg(
    eta: float = 0.01,
    p: float = 0.4,
    S0: int = 25,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
) -> Algorithm:
    """PAGE-PG (Gargiani et al. 2022): S0 trajectories with probability p, and otherwise B and SRVR-PG's correction.

    The authors' program uses the large batch with probability 1 − pt.
    """
    return Algorithm(gpomdp(gamma, baseline), trackers.sarah(), schedules.coin(p, S0, B), steps.optax_step(eta, optimizer))


def restarted(after: int, S0: int, B: int) -> Schedule:
    """S0 trajectories, then B: for `after` iterations before the next S0, or for ever if it is 0."""
    return schedules.every(after, S0, B) if after else schedules.once(S0, B)


@algorithm("hspga")
def hspga(
    eta: float = 0.01,
    alpha: float = 0.3,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
    restart: int = 0,
) -> Algorithm:
    """HSPGA (Pham et al. 2020): STORM-PG with d(ξ_t) and the correction from different batches of B.

    `restart`: begin again with S0 trajectories after this number of small iterations, 3 in the authors' program; 0: never.
    """
    tracker = trackers.follow(alpha, trackers.weighted(second=True))
    return Algorithm(gpomdp(gamma, baseline), tracker, restarted(restart, S0, B), steps.optax_step(eta, optimizer))


@algorithm("prox-hspga")
def prox_hspga(
    eta: float = 0.01,
    alpha: float = 0.3,
    penalty: float = 1e-5,
    share: float = 0.99,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
    restart: int = 0,
) -> Algorithm:
    """ProxHSPGA (Pham et al. 2020): HSPGA with an L2 penalty by its proximal map, and averaging: `share` of the new parameters.

    `penalty` is η λ of the paper. The authors' program: β = 1 − alpha = 0.99, λ = 0.001, share=0.99.
    """
    tracker = trackers.follow(alpha, trackers.weighted(second=True))
    step = steps.averaged(steps.optax_step(eta, optimizer), share, penalty)
    return Algorithm(gpomdp(gamma, baseline), tracker, restarted(restart, S0, B), step)


@algorithm("tsivr-pg")
def tsivr_pg(
    eta: float = 0.01,
    delta: float = 0.1,
    S0: int = 25,
    B: int = 5,
    m: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
) -> Algorithm:
    """TSIVR-PG (Zhang et al. 2021), for rewards: SRVR-PG with steps η g_t of length δ at most, which bounds the weights."""
    step = steps.radius(steps.optax_step(eta, "sgd"), delta)
    return Algorithm(gpomdp(gamma, baseline), trackers.sarah(), schedules.every(m, S0, B), step)


@algorithm("def-storm-pg")
def def_storm_pg(
    eta: float = 0.01,
    alpha: float = 0.9,
    b: float = 0.5,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
) -> Algorithm:
    """DEF-STORM-PG (Papini, Metelli, Restelli 2024): each trajectory is sampled at ξ_{t−1} with probability b."""
    tracker = trackers.follow(alpha, trackers.defensive(b))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.once(S0, B), steps.optax_step(eta, optimizer))


@algorithm("def-svrpg")
def def_svrpg(
    eta: float = 0.01,
    b: float = 0.5,
    S0: int = 25,
    B: int = 5,
    m: int = 3,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
) -> Algorithm:
    """DEF-SVRPG (Papini, Metelli, Restelli 2024): SVRPG with trajectories sampled at the snapshot with probability b."""
    tracker = trackers.follow(0.0, trackers.defensive(b), remembers="snapshot")
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.every(m, S0, B), steps.optax_step(eta, optimizer))


@algorithm("def-srvr-pg")
def def_srvr_pg(
    eta: float = 0.01,
    b: float = 0.5,
    S0: int = 25,
    B: int = 5,
    m: int = 3,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
) -> Algorithm:
    """DEF-SRVR-PG (Papini, Metelli, Restelli 2024): SRVR-PG with trajectories sampled at ξ_{t−1} with probability b."""
    tracker = trackers.follow(0.0, trackers.defensive(b))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.every(m, S0, B), steps.optax_step(eta, optimizer))


@algorithm("def-page-pg")
def def_page_pg(
    eta: float = 0.01,
    p: float = 0.4,
    b: float = 0.5,
    S0: int = 25,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
) -> Algorithm:
    """DEF-PAGE-PG (Papini, Metelli, Restelli 2024): PAGE-PG with small batches sampled at ξ_{t−1} with probability b."""
    tracker = trackers.follow(0.0, trackers.defensive(b))
    return Algorithm(gpomdp(gamma, baseline), tracker, schedules.coin(p, S0, B), steps.optax_step(eta, optimizer))


@algorithm("srvr-npg")
def srvr_npg(
    eta: float = 0.003,
    damping: float = 0.1,
    S0: int = 25,
    B: int = 5,
    m: int = 3,
    gamma: float = 0.99,
    baseline: str = "time",
) -> Algorithm:
    """SRVR-NPG (Liu et al. 2020): SRVR-PG's gradient with steps η (F + damping)⁻¹ g_t."""
    return Algorithm(gpomdp(gamma, baseline), trackers.sarah(), schedules.every(m, S0, B), steps.natural(eta, damping))


@algorithm("storm-npg")
def storm_npg(
    eta: float = 0.003,
    alpha: float = 0.9,
    damping: float = 0.1,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
) -> Algorithm:
    """STORM-NPG (MNPG, Feng et al. 2022): STORM-PG's gradient with steps η (F + damping)⁻¹ g_t."""
    return Algorithm(gpomdp(gamma, baseline), trackers.storm(alpha), schedules.once(S0, B), steps.natural(eta, damping))


@algorithm("pois")
def pois(
    eta: float = 0.1,
    failure: float = 0.99,
    S0: int = 25,
    iterations: int = 10,
    gamma: float = 0.99,
    self_normalised: bool = True,
) -> Algorithm:
    """POIS (Metelli et al. 2018): on each batch several ascents of a lower bound on the return, see `steps.offline`.

    `failure` is δ, the probability with which the bound may fail. Each ascent is along the gradient and kept if the bound
    increases; the authors' program has a line search by parabolas. `eta`: the length of the first attempt. The paper's bound is
    that without `self_normalised`, which is a choice of the authors' program; it needs returns that are positive.
    """
    step = steps.offline(eta, failure, gamma, iterations, self_normalised)
    return Algorithm(reinforce(gamma, "none"), trackers.plain(), schedules.always(S0), step)
