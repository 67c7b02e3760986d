"""The algorithms that the paper compares (Table 1), with the defaults of its Table 2 (Cart-Pole), where it lists them."""

from stormpg import guards, schedules, steps, trackers
from stormpg.algorithms.registry import Algorithm, Optimizer, algorithm
from stormpg.contract import Step
from stormpg.estimators import Estimator, surrogate
from stormpg.estimators import gpomdp as gpomdp_estimator
from stormpg.estimators import pgt as pgt_estimator
from stormpg.estimators import reinforce as reinforce_estimator


def _plain(estimator: Estimator, S0: int, step: Step) -> Algorithm:
    """The estimate itself from S0 trajectories for every step."""
    return Algorithm(estimator, trackers.plain(), schedules.always(S0), step)


@algorithm("reinforce")
def reinforce(
    eta: float = 0.005,
    S0: int = 25,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
) -> Algorithm:
    """REINFORCE (Williams 1992), equation (4): S0 trajectories for every step."""
    return _plain(reinforce_estimator(gamma, baseline), S0, steps.optax_step(eta, optimizer, decay, decay_every))


@algorithm("pgt")
def pgt(
    eta: float = 0.005,
    S0: int = 25,
    gamma: float = 0.99,
    baseline: str = "value",
    optimizer: Optimizer = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
) -> Algorithm:
    """PGT (Sutton et al. 2000): every score times the reward to come, minus a fitted linear value function.

    With the baseline "time" it equals GPOMDP on-policy.
    """
    return _plain(pgt_estimator(gamma, baseline), S0, steps.optax_step(eta, optimizer, decay, decay_every))


@algorithm("gpomdp")
def gpomdp(
    eta: float = 0.005,
    S0: int = 25,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
) -> Algorithm:
    """GPOMDP (Baxter and Bartlett 2001), equation (5): S0 trajectories for every step."""
    return _plain(gpomdp_estimator(gamma, baseline), S0, steps.optax_step(eta, optimizer, decay, decay_every))


@algorithm("svrpo")
def svrpo(
    delta: float = 0.01,
    S0: int = 25,
    B: int = 10,
    m: int = 3,
    gamma: float = 0.99,
    baseline: str = "time",
    damping: float = 0.01,
) -> Algorithm:
    """SVRPO (Xu, Liu and Peng 2017): SVRG inside one batch, with trust-region natural-gradient steps.

    The m small batches of size B are drawn from the S0 trajectories of the snapshot, so they sample no trajectories, and
    d(ξ̃) has weight 1; d(ξ) is the gradient of the surrogate. δ (`delta`) bounds the KL divergence of each step.
    """
    trackers.check_part(B, S0)
    return Algorithm(
        surrogate(gpomdp_estimator(gamma, baseline)),
        trackers.svrg_within(),
        schedules.every(m, S0, B),
        steps.natural_gradient(delta, damping),
    )


@algorithm("svrpg")
def svrpg(
    eta: float = 0.0075,
    S0: int = 25,
    B: int = 10,
    m: int = 3,
    gamma: float = 0.99,
    baseline: str = "time",
    adaptive: bool = False,
    two_optimizers: bool = False,
    inner_rate: float = 0.5,
    optimizer: Optimizer = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
    self_normalised: bool = False,
) -> Algorithm:
    """SVRPG: a snapshot from S0 trajectories, then m steps from B trajectories, corrected by the snapshot, equation (7).

    The default is the form of Xu et al. 2019 (fixed m, one optimiser). `adaptive=True, two_optimizers=True` is the form of
    Papini et al. 2018: the inner loop may end early, and snapshots use a separate optimiser with rate η; the inner rate is
    η · inner_rate. `self_normalised`: the weights are divided by their mean over the batch, as in their experiments.
    """
    return Algorithm(
        gpomdp_estimator(gamma, baseline, guard=guards.self_normalised() if self_normalised else None),
        trackers.svrg(),
        schedules.every(m, S0, B, adaptive),
        steps.optax_step(eta, optimizer, decay, decay_every, two_optimizers, inner_rate),
    )


@algorithm("srvr-pg")
def srvr_pg(
    eta: float = 0.005,
    S0: int = 25,
    B: int = 5,
    m: int = 3,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
) -> Algorithm:
    """SRVR-PG (Xu et al. 2019): epochs of S0 trajectories and m recursive steps from B trajectories, equation (8)."""
    return Algorithm(
        gpomdp_estimator(gamma, baseline),
        trackers.sarah(),
        schedules.every(m, S0, B),
        steps.optax_step(eta, optimizer, decay, decay_every),
    )


@algorithm("storm-pg")
def storm_pg(
    eta: float = 0.01,
    alpha: float = 0.9,
    S0: int = 10,
    B: int = 5,
    gamma: float = 0.99,
    baseline: str = "time",
    optimizer: Optimizer = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
) -> Algorithm:
    """STORM-PG, Algorithm 1: S0 trajectories first, then B for every step, equation (9)."""
    return Algorithm(
        gpomdp_estimator(gamma, baseline),
        trackers.storm(alpha),
        schedules.once(S0, B),
        steps.optax_step(eta, optimizer, decay, decay_every),
    )
