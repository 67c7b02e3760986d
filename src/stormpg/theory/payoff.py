"""Where variance reduction pays: trajectories until E‖∇L(ξ_t)‖² ≤ ε², GPOMDP's over STORM-PG's, both tuned equally.

On random linear systems, where the noise of an estimate stays however good the policy is. (A soft-max table can be driven to
where gradients and their noise vanish together, by long steps too.) Over the system's noise, the horizon, the batch size and
ε. Each method has eighteen settings at every batch size; the best one for each cell is chosen by half of the seeds and shown
on the others.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.envs.lqr import System
from stormpg.studies.statistics import percentiles
from stormpg.theory.descent import Descent, Linear
from stormpg.theory.linear import curvature, gradient
from stormpg.theory.problems import COMMON, random_system
from stormpg.theory.rates import passage

GAMMA = 0.95
NOISES = (0.1, 1.0)
SIGMA = 1.0  # of the policy
HORIZONS = (5, 10, 20)
BATCHES = (2, 10, 50)
SHARES = (0.7, 0.5, 0.3)  # ε over ‖∇L(ξ_0)‖
RESAMPLES = 200


def settings(name: str, B: int) -> list[Algorithm]:
    """Eighteen, with step sizes over the smoothness at ξ_0: three decades of them, or for STORM-PG a third with three α."""
    common = COMMON | {"gamma": GAMMA, "S0": B}
    etas = lambda count: np.geomspace(0.0005, 0.5, count)
    if name == "gpomdp":
        return [make_algorithm(name, eta=float(eta), **common) for eta in etas(18)]
    pairs = itertools.product(etas(6), (0.1, 0.3, 0.6))
    return [make_algorithm(name, eta=float(eta), alpha=alpha, B=B, **common) for eta, alpha in pairs]


def scaled(system: System, family: Linear) -> System:
    """The problem with its costs divided by the smoothness at ξ_0 = 0, so that one range of step sizes fits them all."""
    size = curvature(system, family.sigma, family.gamma, family.horizon)
    return system._replace(Q=np.asarray(system.Q / size), R=np.asarray(system.R / size))


def measure(
    name: str, horizon: int, B: int, problems: int, seeds: int, most: int, noises: Sequence[float] = NOISES
) -> dict[str, Any]:
    """E‖∇L(ξ_t)‖² of every setting on every problem with every noise; of it, N(ε) by both halves of the seeds."""
    with jax.enable_x64(True):
        family = Linear(horizon, GAMMA, SIGMA)
        data = [scaled(random_system(2, 1, noise=noise, seed=seed), family) for seed in range(problems) for noise in noises]
        nowhere = {"mean": jnp.zeros((len(data[0].A) + 1, data[0].B.shape[1]))}
        first = [float(jnp.linalg.norm(gradient(one, nowhere, family.sigma, GAMMA, horizon)["mean"])) for one in data]
        descent = Descent(family, data, settings(name, B), range(2 * seeds)).go_on(most // B - 1)
        found, trajectories = descent["gradient"], descent.trajectories  # [problems · noises, settings, seeds, T]
    with np.errstate(over="ignore", invalid="ignore"):  # of runs with steps too long, which have left all bounds
        cells = [numbers(curves, trajectories, norm, seeds) for curves, norm in zip(found, first, strict=True)]
    return {"first": first, "cells": cells, "most": most}


def numbers(curves: np.ndarray, trajectories: np.ndarray, first: float, seeds: int) -> list[dict[str, Any]]:
    """For each ε the setting that the first half of the seeds chooses, and N(ε) of the other half with its resamples."""
    choosing, fresh = curves[:, :seeds], curves[:, seeds:]
    random, made = np.random.default_rng(0), []
    drawn = random.integers(seeds, size=(RESAMPLES, seeds))
    for share in SHARES:
        needed = functools.partial(passage, trajectories=trajectories, epsilon=share * first)
        best = int(np.argmin([needed(mean) for mean in choosing.mean(axis=1)]))
        draws = [needed(fresh[best][chosen].mean(axis=0)) for chosen in drawn]
        made.append({"setting": best, "N": needed(fresh[best].mean(axis=0)), "draws": draws})
    return made


def ratio(plain: Sequence[dict[str, Any]], reduced: Sequence[dict[str, Any]], most: int) -> dict[str, Any]:
    """GPOMDP's N(ε) over STORM-PG's, the geometric mean over problems, with an interval over seeds.

    A method that did not get there is counted with all it was given, and the cell says so; None where neither did.
    """
    limited = lambda values: np.minimum(np.asarray(values, dtype=float), most)
    log = lambda cells, key: np.mean([np.log(limited(cell[key])) for cell in cells], axis=0)
    never = [sum(not math.isfinite(cell["N"]) for cell in cells) for cells in (plain, reduced)]
    if min(never) == len(plain):
        return {"ratio": None, "low": None, "high": None, "never": never}
    found = percentiles(math.exp(log(plain, "N") - log(reduced, "N")), np.exp(log(plain, "draws") - log(reduced, "draws")))
    return {"ratio": float(found.estimate), "low": float(found.low), "high": float(found.high), "never": never}
