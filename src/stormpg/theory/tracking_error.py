"""The tracking error E‖g_t − ∇L(ξ_t)‖² along training, its two parts, and Lemma 4's bound on it.

Given the past, E[g_t] − ∇L(ξ_t) is the error that the memory carries over (bias). The rest comes from the new batch
(variance). With e = g − ∇L the bias is

    plain: 0;  STORM-PG: (1 − α) e_{t−1};  SRVR-PG: e_{t−1};  SVRPG: e of the last large batch.

This holds for every transport whose mean is the difference of the gradients, with α_t known in advance: for successors with
weights, mixtures or Hessian-vector products, too. For the others the two parts are not told apart.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import ALGORITHMS, Algorithm, make_algorithm
from stormpg.contract import Moment
from stormpg.pytrees import norm
from stormpg.rates import Powers
from stormpg.statistics import interval
from stormpg.theory import bounds, linear
from stormpg.theory.constants import hessian_norm, measured
from stormpg.theory.descent import Descent, Family, Linear
from stormpg.theory.lemmas import looked_at
from stormpg.theory.problems import COMMON, FAMILY, problem, random_system
from stormpg.trackers import Corrected
from stormpg.trackers.transports import Defensive, Hessian, Weighted

SYSTEMS = Linear(horizon=20, gamma=0.95)
PLAIN, EPOCHS, SINGLE = {"S0": 10}, {"S0": 25, "B": 5, "m": 5}, {"B": 5}
SETTINGS: dict[str, Mapping[str, Any]] = {
    **dict.fromkeys(("reinforce", "pgt", "gpomdp"), PLAIN),
    **dict.fromkeys(("svrpg", "srvr-pg"), EPOCHS),
    "storm-pg": {"S0": 25, "B": 5, "alpha": 0.2},
}
SUCCESSORS: dict[str, Mapping[str, Any]] = {
    "hspga": {"S0": 25, "B": 5, "alpha": 0.2},
    "def-storm-pg": {"S0": 25, "B": 5, "alpha": 0.2},
    **dict.fromkeys(("def-svrpg", "def-srvr-pg", "tsivr-pg", "hapg"), EPOCHS),
    **dict.fromkeys(("harpg", "n-harpg", "sharp", "n-pg-igt"), SINGLE),
    "storm-plus": {"S0": 25, "B": 5},
    "meta-storm": {"S0": 25, "B": 5},
}
SETTINGS |= SUCCESSORS
WITHOUT_WEIGHTS = ("hapg", "harpg", "n-harpg", "sharp", "n-pg-igt")
OF_A_LENGTH = ("hapg", "n-harpg", "sharp", "n-pg-igt")  # steps whose length does not depend on that of g
LONGER = 10  # times the first step of the others, as most of them decrease
# The rules of STORM+ and META-STORM divide by these functions of ‖d‖² in the first step.
RULES: dict[str, Callable[[float], float]] = {
    "storm-plus": lambda square: (square * (1 + square) ** (2 / 3)) ** (1 / 3),
    "meta-storm": lambda square: (1 + square) ** (1 / 4),
}
POINTS = 60  # number of points of a curve in the report


def exact_problem(kind: str, seed: int) -> tuple[Family, Any, float]:
    """Return a family, one of its problems, and the step size of all methods, a fraction of 1 / smoothness at ξ_0."""
    if kind == "finite":
        tables = problem(seed)
        curvature = hessian_norm(tables, jnp.zeros(tables.P.shape[:2]), FAMILY.gamma, FAMILY.horizon)
        return FAMILY, (tables, 0.0), 0.1 / float(curvature)
    system = random_system(seed=seed)
    curvature = linear.curvature(system, SYSTEMS.sigma, SYSTEMS.gamma, SYSTEMS.horizon)
    return SYSTEMS, system, 0.03 / float(curvature)


def step_size(name: str, eta: float, slope: float) -> dict[str, float]:
    """η of a method, from that of plain steps and ‖∇L(ξ_0)‖. The first step of a rule is as long as a plain one."""
    if name in RULES:
        return {"eta": eta * RULES[name](slope**2)}
    return {"eta": LONGER * eta * slope if name in OF_A_LENGTH else eta}


def settings_of(name: str) -> set[str]:
    """The names of the settings of a method."""
    return set(inspect.signature(ALGORITHMS[name]).parameters)


def made(name: str, family: Family, **settings: Any) -> Algorithm:
    """A method with these settings, and those that the theory assumes."""
    common = {key: value for key, value in (COMMON | {"gamma": family.gamma}).items() if key in settings_of(name)}
    return make_algorithm(name, **settings, **common)


def method(name: str, family: Family, eta: float, slope: float) -> Algorithm:
    """A method with its settings for the laboratory."""
    return made(name, family, **SETTINGS[name], **step_size(name, eta, slope))


def momenta(tracker: Corrected, count: int) -> np.ndarray | None:
    """α_t of the first iterations; None if it depends on what is sampled, or if the transport is biased."""
    if (
        not isinstance(tracker.carrier, Weighted | Defensive | Hessian)
        or tracker.scale is not None
        or tracker.radius is not None
    ):
        return None
    if tracker.rates is None:
        return np.full(count, float(tracker.alpha))
    if not isinstance(tracker.rates, Powers):
        return None
    return np.asarray(tracker.rates.alpha(Moment(jax.random.key(0), jnp.arange(count)), ()))


def slope_of(family: Family, data: Any) -> float:
    """‖∇L(ξ_0)‖."""
    problem = family(data)
    params = problem.policy.init(jax.random.key(0))
    return float(norm(problem.gradient(params)))


def bias_of(algorithm: Algorithm, error: np.ndarray) -> np.ndarray | None:
    """‖E[g_t | past] − ∇L(ξ_t)‖² at each iteration (last axis), from ‖e‖²; None if it does not follow from it."""
    tracker, t = algorithm.tracker, np.arange(error.shape[-1])
    if not isinstance(tracker, Corrected):
        return np.zeros_like(error)
    alpha = momenta(tracker, len(t))
    if alpha is None:
        return None
    large = algorithm.schedule.larges(len(t))
    snapshot = np.maximum.accumulate(np.where(large, t, 0))  # the last large batch
    reference = np.maximum(t - 1, 0) if tracker.remembers == "previous" else snapshot
    return np.where(large, 0.0, (1 - alpha) ** 2 * error[..., reference])


def along_training(kind: str, seed: int, name: str, seeds: int, most: int) -> dict[str, Any]:
    """Run a method on a problem. Return the error, its parts and the gradient by trajectories, with intervals over seeds."""
    with jax.enable_x64(True):
        family, data, eta = exact_problem(kind, seed)
        algorithm = method(name, family, eta, slope_of(family, data))
        what = ("error", "gradient", "estimate", "params")
        descent = Descent(family, [data], [algorithm], range(seeds), what)
        descent.go_on(descent.units(most))
        seen = {key: descent[key][0, 0] for key in what[:3]}
        lemma = None
        if kind == "finite" and name == "storm-pg":
            start = measured(data[0], family.gamma, family.horizon)
            visited = looked_at(data[0], descent["params"]["logits"][0, 0], start)
            lemma = recursion(algorithm, seen, eta, visited.sigma2, visited.difference)
        bias = bias_of(algorithm, seen["error"])
    trajectories = descent.trajectories
    parts = {} if bias is None else {"bias": bias, "variance": seen["error"] - bias}
    columns = {"error": seen["error"], **parts, "gradient": seen["gradient"]}
    # Windows of equal numbers of trajectories, so that methods with different batch sizes are averaged over the same range.
    edges = np.linspace(0, most, POINTS + 1)
    window = np.clip(np.digitize(trajectories, edges[1:-1]), 0, POINTS - 1)
    used = np.unique(window)
    means = {key: np.stack([x[:, window == w].mean(axis=1) for w in used], axis=1) for key, x in columns.items()}
    shown = {key: interval(value) for key, value in means.items()}
    stored = {
        "trajectories": edges[1:][used].tolist(),
        **{key: {"estimate": i.estimate.tolist(), "low": i.low.tolist(), "high": i.high.tolist()} for key, i in shown.items()},
        "whole": {key: [float(v) for v in interval(x.mean(axis=1))[:3]] for key, x in columns.items()},
        "settings": {**step_size(name, eta, slope_of(family, data)), **SETTINGS[name]},
    }
    if lemma is not None:
        stored["lemma4"] = [float(lemma[window == w].mean()) for w in used]
    return stored


def recursion(algorithm: Algorithm, seen: Mapping[str, np.ndarray], eta: float, sigma2: float, difference: float) -> np.ndarray:
    """Apply Lemma 4 step by step, starting at the first error. Return a bound for every t, from the measured E‖g_t‖²."""
    assert isinstance(algorithm.tracker, Corrected), "Lemma 4 is about STORM-PG"
    alpha, B = float(algorithm.tracker.alpha), algorithm.schedule.B
    values = [float(seen["error"][:, 0].mean())]
    for estimate in seen["estimate"].mean(axis=0)[:-1]:
        values.append(bounds.one_step(values[-1], float(estimate), alpha, B, eta, sigma2, difference))
    return np.array(values)
