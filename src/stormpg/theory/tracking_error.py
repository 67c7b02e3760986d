"""The tracking error E‖g_t − ∇L(ξ_t)‖² along training, its two parts, and what Lemma 4 says of it.

Given the past, E[g_t] − ∇L(ξ_t) is what the memory carries along (bias), and the rest is the new batch (variance):

    plain: nothing;  STORM-PG: (1 − α) e_{t−1};  SRVR-PG: e_{t−1};  SVRPG: e of the last large batch;  e = g − ∇L.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.studies.statistics import interval
from stormpg.theory import bounds, linear
from stormpg.theory.constants import hessian_norm, measured
from stormpg.theory.descent import Descent, Family, Linear
from stormpg.theory.lemmas import looked_at
from stormpg.theory.problems import COMMON, FAMILY, problem, random_system
from stormpg.trackers import Corrected

SYSTEMS = Linear(horizon=20, gamma=0.95)
PLAIN, EPOCHS = {"S0": 10}, {"S0": 25, "B": 5, "m": 5}
SETTINGS: dict[str, Mapping[str, Any]] = {
    **dict.fromkeys(("reinforce", "pgt", "gpomdp"), PLAIN),
    **dict.fromkeys(("svrpg", "srvr-pg"), EPOCHS),
    "storm-pg": {"S0": 25, "B": 5, "alpha": 0.2},
}
POINTS = 60  # of a curve that is shown


def exact_problem(kind: str, seed: int) -> tuple[Family, Any, float]:
    """A family, a problem of it, and the step size that all methods take: a fraction of one over the smoothness at ξ_0."""
    if kind == "finite":
        tables = problem(seed)
        curvature = hessian_norm(tables, jnp.zeros(tables.P.shape[:2]), FAMILY.gamma, FAMILY.horizon)
        return FAMILY, (tables, 0.0), 0.1 / float(curvature)
    system = random_system(seed=seed)
    curvature = linear.curvature(system, SYSTEMS.sigma, SYSTEMS.gamma, SYSTEMS.horizon)
    return SYSTEMS, system, 0.03 / float(curvature)


def bias_of(algorithm: Algorithm, error: np.ndarray) -> np.ndarray:
    """‖E[g_t | past] − ∇L(ξ_t)‖² of each iteration (last axis), from ‖e‖²."""
    tracker, t = algorithm.tracker, np.arange(error.shape[-1])
    if not isinstance(tracker, Corrected):
        return np.zeros_like(error)
    large = algorithm.schedule.larges(len(t))
    snapshot = np.maximum.accumulate(np.where(large, t, 0))  # the last large batch
    reference = np.maximum(t - 1, 0) if tracker.remembers == "previous" else snapshot
    return np.where(large, 0.0, (1 - float(tracker.alpha)) ** 2 * error[..., reference])


def along_training(kind: str, seed: int, name: str, seeds: int, most: int) -> dict[str, Any]:
    """A method on a problem: the error, its parts and the gradient against trajectories, with intervals over seeds."""
    with jax.enable_x64(True):
        family, data, eta = exact_problem(kind, seed)
        algorithm = make_algorithm(name, **SETTINGS[name], **COMMON | {"gamma": family.gamma}, eta=eta)
        what = ("error", "gradient", "estimate", "params")
        descent = Descent(family, [data], [algorithm], range(seeds), what).go_on(most // algorithm.schedule.unit_size)
        seen = {key: descent[key][0, 0] for key in what[:3]}
        lemma = None
        if kind == "finite" and name == "storm-pg":
            start = measured(data[0], family.gamma, family.horizon)
            visited = looked_at(data[0], descent["params"]["logits"][0, 0], start)
            lemma = recursion(algorithm, seen, eta, visited.sigma2, visited.difference)
    trajectories = descent.trajectories
    bias = bias_of(algorithm, seen["error"])
    columns = {"error": seen["error"], "bias": bias, "variance": seen["error"] - bias, "gradient": seen["gradient"]}
    # Windows of equal numbers of trajectories, so that methods whose batches differ are averaged over the same stretch.
    edges = np.linspace(0, most, POINTS + 1)
    window = np.clip(np.digitize(trajectories, edges[1:-1]), 0, POINTS - 1)
    used = np.unique(window)
    means = {key: np.stack([x[:, window == w].mean(axis=1) for w in used], axis=1) for key, x in columns.items()}
    shown = {key: interval(value) for key, value in means.items()}
    made = {
        "trajectories": edges[1:][used].tolist(),
        **{key: {"estimate": i.estimate.tolist(), "low": i.low.tolist(), "high": i.high.tolist()} for key, i in shown.items()},
        "whole": {key: [float(v) for v in interval(x.mean(axis=1))[:3]] for key, x in columns.items()},
        "settings": {"eta": eta, **SETTINGS[name]},
    }
    if lemma is not None:
        made["lemma4"] = [float(lemma[window == w].mean()) for w in used]
    return made


def recursion(algorithm: Algorithm, seen: Mapping[str, np.ndarray], eta: float, sigma2: float, difference: float) -> np.ndarray:
    """Lemma 4 from the first error on, step by step: a bound for every t, from E‖g_t‖² as measured."""
    assert isinstance(algorithm.tracker, Corrected), "the lemma is about STORM-PG"
    alpha, B = float(algorithm.tracker.alpha), algorithm.schedule.B
    values = [float(seen["error"][:, 0].mean())]
    for estimate in seen["estimate"].mean(axis=0)[:-1]:
        values.append(bounds.one_step(values[-1], float(estimate), alpha, B, eta, sigma2, difference))
    return np.array(values)
