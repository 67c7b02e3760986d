"""The algorithms: each one combines an estimator, a tracker, a schedule and a step.

Those of the paper's Table 1 have the defaults of its Table 2 (Cart-Pole), where it lists them. `window_npg` is the default of
the library. Symbols: η is `eta`, α (also written a) is `alpha`, γ is `gamma`; S0, B and m keep their names.

Common settings: baseline (see `estimators`); optimizer: the name of an optax optimiser, a function from a learning rate to
one, or an optax transformation, which is used as it is, without eta and decay; decay and decay_every:
η_t = η · decay^(t / decay_every).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeAlias, get_type_hints

import optax

from stormpg import schedules, steps, trackers
from stormpg.contract import Step, Tracker
from stormpg.errors import InputError, choose, nearest
from stormpg.estimators import Estimator, gae, surrogate
from stormpg.estimators import gpomdp as gpomdp_estimator
from stormpg.estimators import pgt as pgt_estimator
from stormpg.estimators import reinforce as reinforce_estimator
from stormpg.pytrees import Aside, record, static
from stormpg.schedules import Schedule

Optimizer: TypeAlias = str | Callable[..., Any] | optax.GradientTransformation
P = ParamSpec("P")


@record
class Algorithm:
    """One row of the table: estimator × tracker × schedule × step. Its floats are traced, everything else is static."""

    estimator: Estimator
    tracker: Tracker
    schedule: Schedule
    step: Step
    name: str = static(default="custom")
    policy: Aside = static(default_factory=lambda: Aside({}))  # recommended settings of `policy_for`, used if none is given
    note: Aside = static(default_factory=lambda: Aside({}))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The arguments of its constructor, including defaults."""
        settings: Mapping[str, Any] = self.note.content
        return settings


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {}
DEFAULT = "window-npg"  # what `train`, `Agent` and the command use if no algorithm is given


def algorithm(name: str) -> Callable[[Callable[P, Algorithm]], Callable[P, Algorithm]]:
    """Register a constructor under a name, and check its arguments against its annotations."""

    def register(function: Callable[P, Algorithm]) -> Callable[P, Algorithm]:
        signature, hints = inspect.signature(function), get_type_hints(function)

        @functools.wraps(function)
        def constructor(*args: P.args, **settings: P.kwargs) -> Algorithm:
            for key in settings:
                if key not in signature.parameters:
                    raise InputError(f"{name} has no setting {key!r}: {nearest(key, signature.parameters)}{others_with(key)}.")
            bound = signature.bind(*args, **settings)
            bound.apply_defaults()
            for key, value in bound.arguments.items():
                check_type(key, value, hints[key])
            return dataclasses.replace(function(*bound.args, **bound.kwargs), name=name, note=Aside(dict(bound.arguments)))

        ALGORITHMS[name] = constructor
        return constructor

    return register


def others_with(setting: str) -> str:
    """A hint which algorithms have a setting, for error messages."""
    known = [name for name, constructor in ALGORITHMS.items() if setting in inspect.signature(constructor).parameters]
    return f". It is a setting of {', '.join(known)}: name the algorithm" if known else ""


def check_type(name: str, value: Any, expected: Any) -> None:
    """Raise InputError if a setting does not have its annotated type. A float setting takes any real number."""
    number = not isinstance(value, bool | str) and (isinstance(value, int | float) or hasattr(value, "dtype"))
    wanted = {
        float: (number, "a number"),
        int: (isinstance(value, int) and not isinstance(value, bool), "a whole number"),
        bool: (isinstance(value, bool), "true or false"),
        str: (isinstance(value, str), "a name"),
    }
    good, what = wanted.get(expected, (True, ""))
    if not good:
        raise InputError(f"{name} is {value!r}; expected {what}.")


def make_algorithm(name: str, **settings: Any) -> Algorithm:
    """Make the algorithm with this name and these settings."""
    return ALGORITHMS[choose("algorithm", name, ALGORITHMS)](**settings)


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
) -> Algorithm:
    """SVRPG: a snapshot from S0 trajectories, then m steps from B trajectories, corrected by the snapshot, equation (7).

    The default is the form of Xu et al. 2019 (fixed m, one optimiser). `adaptive=True, two_optimizers=True` is the form of
    Papini et al. 2018: the inner loop may end early, and snapshots use a separate optimiser with rate η; the inner rate is
    η · inner_rate.
    """
    return Algorithm(
        gpomdp_estimator(gamma, baseline),
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
