"""Where variance reduction pays: trajectories until E‖∇L(ξ_t)‖² ≤ ε², GPOMDP's over STORM-PG's, both tuned equally.

Over the noise of the rewards, the horizon, the batch size and ε. Each method has twelve settings at every batch size; the
best one for each cell is chosen by half of the seeds and shown on the others.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.stats import percentiles
from stormpg.theory import tabular
from stormpg.theory.constants import hessian_norm
from stormpg.theory.descent import Descent, Finite
from stormpg.theory.problems import COMMON, problem

GAMMA = 0.95
NOISES = (0.0, 1.0, 4.0)
HORIZONS = (3, 10, 30)
BATCHES = (2, 10, 50)
SHARES = (0.3, 0.1, 0.03)  # ε over ‖∇L(ξ_0)‖
RESAMPLES = 200


def settings(name: str, B: int, smoothness: float) -> list[Algorithm]:
    """Twelve: step sizes over three decades around 1/l; for STORM-PG six of them, each with two α."""
    common = COMMON | {"gamma": GAMMA, "S0": B}
    if name == "gpomdp":
        return [make_algorithm(name, eta=float(eta) / smoothness, **common) for eta in np.geomspace(0.01, 10.0, 12)]
    etas = np.geomspace(0.01, 10.0, 6)
    pairs = itertools.product(etas, (0.1, 0.4))
    return [make_algorithm(name, eta=float(eta) / smoothness, alpha=alpha, B=B, **common) for eta, alpha in pairs]


def measure(name: str, horizon: int, B: int, problems: int, seeds: int, most: int) -> dict[str, Any]:
    """E‖∇L(ξ_t)‖² of every setting on every problem with every noise; of it, N(ε) by both halves of the seeds."""
    with jax.enable_x64(True):
        tables = [problem(seed) for seed in range(problems)]
        zero = np.zeros(tables[0].P.shape[:2])
        smoothness = max(float(hessian_norm(one, zero, GAMMA, horizon)) for one in tables)
        slopes = [np.asarray(tabular.gradient(one, {"logits": zero}, GAMMA, horizon)["logits"]) for one in tables]
        exact = [float(tabular.estimate_moments(one, {"logits": zero}, GAMMA, horizon).variance) for one in tables]
        added = [[float(tabular.noise_variance(one, {"logits": zero}, GAMMA, horizon, x)) for x in NOISES] for one in tables]
        data = [(one, noise) for one in tables for noise in NOISES]
        algorithms = settings(name, B, smoothness)
        descent = Descent(Finite(horizon, GAMMA), data, algorithms, range(2 * seeds)).go_on(most // B - 1)
        gradient, trajectories = descent["gradient"], descent.trajectories  # [problems · noises, settings, seeds, T]
    first = [float(np.linalg.norm(slope)) for slope in slopes for _ in NOISES]
    cells = [numbers(curves, trajectories, norm, seeds) for curves, norm in zip(gradient, first, strict=True)]
    sigma2 = [base + more for base, extra in zip(exact, added, strict=True) for more in extra]
    return {"sigma2": sigma2, "first": first, "cells": cells, "most": most}


def numbers(curves: np.ndarray, trajectories: np.ndarray, first: float, seeds: int) -> list[dict[str, Any]]:
    """For each ε the setting that the first half of the seeds chooses, and N(ε) of the other half with its resamples."""
    choosing, fresh = curves[:, :seeds], curves[:, seeds:]
    random, made = np.random.default_rng(0), []
    drawn = random.integers(seeds, size=(RESAMPLES, seeds))
    for share in SHARES:
        threshold = (share * first) ** 2
        best = int(np.argmin([reach(mean, trajectories, threshold) for mean in choosing.mean(axis=1)]))
        shown = fresh[best]
        draws = [reach(shown[chosen].mean(axis=0), trajectories, threshold) for chosen in drawn]
        made.append({"setting": best, "N": reach(shown.mean(axis=0), trajectories, threshold), "draws": draws})
    return made


def reach(mean: np.ndarray, trajectories: np.ndarray, threshold: float) -> float:
    below = mean <= threshold
    return float(trajectories[below.argmax()]) if below.any() else math.inf


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
