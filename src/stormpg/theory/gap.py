"""How fast the gap L* − L(ξ_t) closes, as a slope in double-logarithmic axes over the number of trajectories.

Zhang et al. 2021 fit −0.496 to TSIVR-PG on FrozenLake8x8; their theory has −½. Here: Garnet processes, on which L* is exact,
and TSIVR-PG's settings of its theory for one ε: S0 = 1/ε², B = m = 1/ε, steps of at most δ = 1/(2 H ‖∇log π‖).
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from stormpg.algorithms import make_algorithm
from stormpg.statistics import interval
from stormpg.theory import tabular
from stormpg.theory.descent import Descent
from stormpg.theory.problems import COMMON, FAMILY
from stormpg.theory.tracking_error import exact_problem

CLAIMED, MARGIN = -0.5, 0.1  # the slope of TSIVR-PG, and how far a slope may be from it
EPSILON = 0.1
SCORE = math.sqrt(2.0)  # the largest norm of a score of a soft-max table
FASTER = 2  # times the step size of the tracking errors; with 10, STORM-PG and SRVR-PG end at policies that cannot improve
POINTS = 40
LAST = 10.0  # the slope is that over the last decade of trajectories
METHODS: dict[str, Mapping[str, Any]] = {
    "tsivr-pg": {"S0": 100, "B": 10, "m": 10, "delta": 1 / (2 * FAMILY.horizon * SCORE)},
    "srvr-pg": {"S0": 100, "B": 10, "m": 10},
    "storm-pg": {"S0": 100, "B": 10, "alpha": 0.2},
    "gpomdp": {"S0": 20},
}


def along(seed: int, name: str, seeds: int, most: int) -> dict[str, Any]:
    """The gap of a method on a problem along training: its mean over seeds, and the slope with an interval over seeds."""
    with jax.enable_x64(True):
        family, data, eta = exact_problem("finite", seed)
        common = {key: value for key, value in COMMON.items() if key != "optimizer" or name != "tsivr-pg"}
        algorithm = make_algorithm(name, **METHODS[name], **common, eta=FASTER * eta)
        descent = Descent(family, [data], [algorithm], range(seeds), ("params",))
        descent.go_on(descent.units(most))
        iterates = descent["params"]["logits"][0, 0]  # [seeds, iterations, states, actions]
        value = lambda logits: tabular.objective(data[0], {"logits": logits}, FAMILY.gamma, FAMILY.horizon)
        best = tabular.optimum(data[0], FAMILY.gamma, FAMILY.horizon)
        gaps = np.asarray(best - jax.jit(jax.vmap(jax.vmap(value)))(iterates))
    trajectories = descent.trajectories
    chosen = np.unique(np.searchsorted(trajectories, np.geomspace(trajectories[0], trajectories[-1], POINTS)))
    x, y = trajectories[chosen], gaps[:, chosen]
    late = x >= x[-1] / LAST

    def slope(of_seeds: np.ndarray, axis: int = 0) -> np.ndarray:
        mean = np.log(of_seeds.mean(axis=axis)[..., late])
        centred = np.log(x[late]) - np.log(x[late]).mean()
        return np.asarray((mean * centred).sum(axis=-1) / (centred**2).sum())

    found = interval(y, slope)
    mean = interval(y)
    return {
        "trajectories": x.tolist(),
        "gap": {key: np.asarray(getattr(mean, key)).tolist() for key in ("estimate", "low", "high")},
        "slope": [float(v) for v in found[:3]],
        "settings": {"eta": FASTER * eta, **METHODS[name]},
    }
