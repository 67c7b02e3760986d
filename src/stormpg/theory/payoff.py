"""Where variance reduction pays: trajectories until E‖∇L(ξ_t)‖² ≤ ε², GPOMDP's over STORM-PG's, both tuned equally.

The problems are random linear systems, on which estimates stay noisy even if the policy is good. (Large steps can move a
soft-max table to where gradients and their noise vanish together.) The map covers the system noise, the horizon, the batch
size and ε. Each method has eighteen settings at every batch size. Half of the seeds select the best setting for each cell,
and the other half is shown.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.envs.lqr import System
from stormpg.statistics import percentiles
from stormpg.theory.descent import Descent, Linear
from stormpg.theory.linear import curvature, gradient
from stormpg.theory.problems import COMMON, random_system
from stormpg.theory.rates import passage

GAMMA = 0.95
NOISES = (0.1, 1.0)
SIGMA = 1.0  # standard deviation of the policy
HORIZONS = (5, 10, 20)
BATCHES = (2, 10, 50)
SHARES = (0.7, 0.5, 0.3)  # ε over ‖∇L(ξ_0)‖
RESAMPLES = 200


def settings(name: str, B: int) -> list[Algorithm]:
    """Return eighteen settings: step sizes over three decades, or for STORM-PG six of them with three values of α."""
    common = COMMON | {"gamma": GAMMA, "S0": B}
    etas: Callable[[int], np.ndarray] = lambda count: np.geomspace(0.0005, 0.5, count)
    if name == "gpomdp":
        return [make_algorithm(name, eta=float(eta), **common) for eta in etas(18)]
    pairs = itertools.product(etas(6), (0.1, 0.3, 0.6))
    return [make_algorithm(name, eta=float(eta), alpha=alpha, B=B, **common) for eta, alpha in pairs]


def scaled(system: System, family: Linear) -> System:
    """Divide the costs by the smoothness at ξ_0 = 0, so that one range of step sizes fits all problems."""
    size = curvature(system, family.sigma, family.gamma, family.horizon)
    return system._replace(Q=np.asarray(system.Q / size), R=np.asarray(system.R / size))


def measure(
    name: str, horizon: int, B: int, problems: int, seeds: int, most: int, noises: Sequence[float] = NOISES
) -> dict[str, Any]:
    """Run every setting on every problem with every noise. Return N(ε) of each cell, see `numbers`."""
    with jax.enable_x64(True):
        family = Linear(horizon, GAMMA, SIGMA)
        data = [scaled(random_system(2, 1, noise=noise, seed=seed), family) for seed in range(problems) for noise in noises]
        zero = {"mean": jnp.zeros((len(data[0].A) + 1, data[0].B.shape[1]))}
        first = [float(jnp.linalg.norm(gradient(one, zero, family.sigma, GAMMA, horizon)["mean"])) for one in data]
        descent = Descent(family, data, settings(name, B), range(2 * seeds)).go_on(most // B - 1)
        found, trajectories = descent["gradient"], descent.trajectories  # [problems · noises, settings, seeds, T]
    with np.errstate(over="ignore", invalid="ignore"):  # runs with too large steps diverge
        cells = [numbers(curves, trajectories, norm, seeds) for curves, norm in zip(found, first, strict=True)]
    return {"first": first, "cells": cells, "most": most}


def numbers(curves: np.ndarray, trajectories: np.ndarray, first: float, seeds: int) -> list[dict[str, Any]]:
    """Select a setting for each ε with the first half of the seeds. Return N(ε) of the other half, with resamples."""
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
    """GPOMDP's N(ε) over STORM-PG's as a geometric mean over problems, with an interval over seeds.

    A method that did not reach ε on a problem is counted with its whole budget, `most`. `never` is the number of such problems
    for each method. The ratio is None if neither method reached ε on any problem.
    """

    def log(cells: Sequence[dict[str, Any]], key: str) -> Any:
        return np.mean([np.log(np.minimum(np.asarray(cell[key], dtype=float), most)) for cell in cells], axis=0)

    never = [sum(not math.isfinite(cell["N"]) for cell in cells) for cells in (plain, reduced)]
    if min(never) == len(plain):
        return {"ratio": None, "low": None, "high": None, "never": never}
    found = percentiles(math.exp(log(plain, "N") - log(reduced, "N")), np.exp(log(plain, "draws") - log(reduced, "draws")))
    return {"ratio": float(found.estimate), "low": float(found.low), "high": float(found.high), "never": never}
