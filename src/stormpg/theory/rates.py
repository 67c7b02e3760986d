"""The number of trajectories N(ε) until E‖∇L(ξ̃)‖² ≤ ε², ξ̃ drawn uniformly from the iterates so far, and its growth.

Prescribed: each ε has its own settings, with σ², the smoothness l and Lemma 3's constant measured on the problem (with the
paper's bounds the numbers are out of reach). Batches of millions of trajectories are sampled as counts. Tuned: each method
has the same number of settings. Half of the seeds select the best one for each ε, and the other half is shown. Successors are
tuned only: most of their rules depend on t instead of ε.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.envs.chain import Tables
from stormpg.statistics import Interval, percentiles
from stormpg.theory import tabular
from stormpg.theory.bounds import Prescription, prescriptions
from stormpg.theory.constants import Measured, measured
from stormpg.theory.counts import branches
from stormpg.theory.descent import LARGE, SMALL, Counted, Descent, sampled
from stormpg.theory.problems import COMMON, FAMILY, problem
from stormpg.theory.tracking_error import made, settings_of, step_size

CLAIMED = {"gpomdp": -4.0, "svrpg": -10 / 3, "srvr-pg": -3.0, "storm-pg": -3.0}  # exponents of ε
METHODS = tuple(CLAIMED)
# Exponents that the successors' papers claim for ‖∇L‖ ≤ ε. Those of HARPG and N-HARPG are for the gap L* − L only. PAGE-PG is
# missing: each of its runs samples another number of trajectories.
SUCCESSORS: dict[str, float | None] = {
    **dict.fromkeys(("hspga", "def-storm-pg", "def-srvr-pg", "tsivr-pg", "storm-plus", "meta-storm", "hapg", "sharp"), -3.0),
    "n-pg-igt": -3.5,
    **dict.fromkeys(("harpg", "n-harpg")),
}
TUNED = (*METHODS, *SUCCESSORS)
SLOWEST_FIRST = ("svrpg", "srvr-pg", "storm-pg", "gpomdp")
COUNTED = Counted(FAMILY.horizon, FAMILY.gamma)
RESAMPLES = 200
OVERSHOOT = 1.2  # a run continues past N(ε) by this factor, because some resamples reach ε later
UNITS = 256  # iterations between two checks of whether ε is reached, at first
SMALL_BATCH = 16  # STORM-PG's B, which Corollary 1 does not fix


def prescribed(algorithm: str, epsilon: float, constants: Measured) -> Prescription:
    """Return the settings that the method's theory prescribes, with measured constants."""
    sigma2, smoothness, difference, gap = constants
    return prescriptions(epsilon, sigma2, gap, math.sqrt(difference), smoothness, SMALL_BATCH)[algorithm]


def candidates(algorithm: str, constants: Measured, slope: float) -> list[list[Algorithm]]:
    """Return twenty-four settings of a method, grouped by shape: six step sizes around 1/l with four shapes.

    With a constant α, as STORM-PG: three step sizes and four α with two shapes. Steps that do not depend on the length of g are
    scaled by `slope`, which is ‖∇L(ξ_0)‖ (see `step_size`).
    """
    etas = [step_size(algorithm, float(eta) / constants.smoothness, slope) for eta in np.geomspace(0.1, 10.0, 6)]
    known = settings_of(algorithm)
    floats = [{**eta, "alpha": alpha} for eta in etas[::2] for alpha in (0.02, 0.1, 0.3, 0.7)]
    shapes: list[dict[str, int]] = [{"S0": 10, "B": 2}, {"S0": 50, "B": 10}]
    if not {"alpha", "S0"} <= known:
        floats, sizes = etas, ((20, 2, 5), (50, 10, 5), (100, 5, 20), (400, 20, 20))
        shapes = [{name: size for name, size in zip(("S0", "B", "m"), row, strict=True) if name in known} for row in sizes]
        if not {"S0", "B"} <= known:  # all batches are equal
            shapes = [{"S0" if "S0" in known else "B": size} for size in (2, 10, 50, 200)]
    return [[made(algorithm, FAMILY, **shape, **setting) for setting in floats] for shape in shapes]


def running(gradient: np.ndarray) -> np.ndarray:
    """E‖∇L(ξ̃)‖² after each iteration, for each seed: the mean over the iterates so far (last axis)."""
    return np.cumsum(gradient, axis=-1) / np.arange(1, gradient.shape[-1] + 1)


def passage(mean: np.ndarray, trajectories: np.ndarray, epsilon: float) -> float:
    """N(ε) of a curve of E‖∇L(ξ̃)‖²; infinite if it does not reach ε²."""
    below = mean <= epsilon**2
    return float(trajectories[below.argmax()]) if below.any() else math.inf


class Curve(NamedTuple):
    """E‖∇L(ξ̃)‖² of each seed, [seeds, points], and the trajectories at these points."""

    seeds: np.ndarray
    trajectories: np.ndarray

    def thinned(self, points: int = 400) -> "Curve":
        """The curve at fewer iterations, evenly spaced in their logarithm. The last one is kept."""
        count = len(self.trajectories)
        chosen = np.unique(np.geomspace(1, count, min(points, count)).round().astype(int)) - 1
        return Curve(self.seeds[:, chosen], self.trajectories[chosen])


def begin(algorithm: str, tables: Sequence[Tables], chosen: Sequence[Prescription], seeds: int) -> Descent:
    """Start runs on every problem, each with its own settings. Batches are sampled as counts, except STORM-PG's."""
    floats = [{name: p.settings[name] for name in ("eta", "alpha") if name in p.settings} for p in chosen]
    first, numbers = chosen[0], range(seeds)
    if algorithm == "storm-pg":
        made = [make_algorithm(algorithm, S0=first.S0, B=first.B, **setting, **COMMON) for setting in floats]
        return Descent(FAMILY, [(one, 0.0) for one in tables], made, numbers, paired=True)
    sizes = {"S0": LARGE} if first.m is None else {"S0": LARGE, "B": SMALL, "m": first.m}
    made = [make_algorithm(algorithm, **sizes, **setting, **COMMON) for setting in floats]
    data = [(branches(one), float(p.S0), float(p.B or p.S0)) for one, p in zip(tables, chosen, strict=True)]
    return Descent(COUNTED, data, made, numbers, paired=True)


def until(
    algorithm: str,
    tables: Sequence[Tables],
    chosen: Sequence[Prescription],
    epsilons: Sequence[float],
    seeds: int,
    most: int,
) -> list[Curve]:
    """Run until a little after N(ε) on every problem, for at most `most` and the T iterations of the theory."""
    most = min(most, max(p.T for p in chosen))
    descent = begin(algorithm, tables, chosen, seeds)
    units = max(1, UNITS // (1 + (chosen[0].m or 0)))
    count = 0
    while True:
        for _ in range(1 + count // (10 * UNITS)):  # a check costs time proportional to all iterations so far
            descent.go_on(units)
        means = running(descent["gradient"][:, 0])
        count = means.shape[-1]
        numbers = [sampled(descent.schedule, p.S0, p.B or p.S0, count) for p in chosen]
        passed = [passage(m.mean(axis=0), np.arange(count), e) for m, e in zip(means, epsilons, strict=True)]
        if count >= min(most, OVERSHOOT * max(passed)):
            return [Curve(m, n).thinned() for m, n in zip(means, numbers, strict=True)]


def reached(curve: Curve, epsilon: float, chosen: np.ndarray) -> float:
    """N(ε) of a curve, as the mean over the chosen seeds."""
    return passage(curve.seeds[chosen].mean(axis=0), curve.trajectories, epsilon)


def slope(epsilons: np.ndarray, numbers: np.ndarray) -> float:
    """The least-squares slope of log N over log ε, over the ε that were reached; NaN if fewer than three were."""
    good = np.isfinite(numbers)
    return float(np.polyfit(np.log(epsilons[good]), np.log(numbers[good]), 1)[0]) if good.sum() >= 3 else math.nan


def fitted(epsilons: np.ndarray, curves: Sequence[Curve]) -> tuple[Interval, Interval]:
    """Return N(ε) for each ε and the slope, with intervals. A resample draws the same seeds for all ε of a problem."""
    count, random = len(curves[0].seeds), np.random.default_rng(0)

    def numbers(chosen: np.ndarray) -> np.ndarray:
        return np.array([reached(c, e, chosen) for c, e in zip(curves, epsilons, strict=True)])

    all_numbers = numbers(np.arange(count))
    draws = np.array([numbers(random.integers(count, size=count)) for _ in range(RESAMPLES)])
    slopes = np.array([slope(epsilons, n) for n in draws])
    return percentiles(all_numbers, draws), percentiles(slope(epsilons, all_numbers), slopes)


def shares_of(points: int, decades: float) -> np.ndarray:
    """The values of ε over ‖∇L(ξ_0)‖, from 0.8 down. (At 1 the first iterate already satisfies the criterion.)"""
    return 0.8 * np.geomspace(1.0, 10.0**-decades, points)


def first_norm(tables: Tables) -> float:
    """‖∇L(ξ_0)‖."""
    uniform = {"logits": np.zeros(tables.P.shape[:2])}
    return float(np.linalg.norm(tabular.gradient(tables, uniform, FAMILY.gamma, FAMILY.horizon)["logits"]))


def by_prescription(algorithm: str, problems: int, share: float, seeds: int, most: int) -> dict[str, Any]:
    """Run a method on all problems with its theory's settings for ε = share · ‖∇L(ξ_0)‖."""
    with jax.enable_x64(True), jax.default_device(device_for(algorithm)):
        tables = [problem(seed) for seed in range(problems)]
        epsilons = [share * first_norm(one) for one in tables]
        constants = [measured(one, FAMILY.gamma, FAMILY.horizon) for one in tables]
        chosen = [prescribed(algorithm, e, c) for e, c in zip(epsilons, constants, strict=True)]
        # All problems share one program, so m, and S0 of batches that are not sampled as counts, are the largest of all.
        if chosen[0].m is not None:
            chosen = [dataclasses.replace(p, m=max(other.m or 0 for other in chosen)) for p in chosen]
        if algorithm == "storm-pg":
            chosen = [dataclasses.replace(p, S0=max(other.S0 for other in chosen)) for p in chosen]
        curves = until(algorithm, tables, chosen, epsilons, seeds, most)
    shown = [{"seeds": curve.seeds.tolist(), "trajectories": curve.trajectories.tolist()} for curve in curves]
    return {"epsilon": epsilons, "curves": shown, "settings": [p.settings for p in chosen]}


def device_for(algorithm: str) -> Any:
    """The device for a method: the CPU for counts, which are sampled in many short loops that are slow on a GPU."""
    return jax.local_devices(backend="cpu")[0] if algorithm != "storm-pg" else jax.local_devices()[0]


def assembled(shares: np.ndarray, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the parts of all ε into one summary."""
    curves = [[Curve(np.array(c["seeds"]), np.array(c["trajectories"])) for c in part["curves"]] for part in parts]
    norms = [epsilon / float(shares[0]) for epsilon in parts[0]["epsilon"]]
    settings = list(zip(*(part["settings"] for part in parts), strict=True))
    return summary(shares, norms, list(zip(*curves, strict=True)), settings)


def by_tuning(algorithm: str, problems: int, points: int, decades: float, seeds: int, most: int) -> dict[str, Any]:
    """Return N(ε) of a method on all problems, with the best setting for each problem and each ε."""
    with jax.enable_x64(True):
        tables = [problem(seed) for seed in range(problems)]
        norms, shares = [first_norm(one) for one in tables], shares_of(points, decades)
        constants = [measured(one, FAMILY.gamma, FAMILY.horizon) for one in tables]
        largest = Measured(*(max(values) for values in zip(*constants, strict=True)))
        curves: list[list[tuple[Algorithm, Curve]]] = [[] for _ in tables]
        for group in candidates(algorithm, largest, max(norms)):
            descent = Descent(FAMILY, [(one, 0.0) for one in tables], group, range(2 * seeds))
            descent.go_on(descent.units(most))
            for mine, means in zip(curves, running(descent["gradient"]), strict=True):
                mine += [(one, Curve(m, descent.trajectories).thinned()) for one, m in zip(group, means, strict=True)]
    choosing, fresh = np.arange(seeds), np.arange(seeds, 2 * seeds)

    def quickest(mine: list[tuple[Algorithm, Curve]], epsilon: float) -> tuple[Algorithm, Curve]:
        return min(mine, key=lambda pair: reached(pair[1], epsilon, choosing))

    best = [[quickest(mine, share * norm) for share in shares] for mine, norm in zip(curves, norms, strict=True)]
    shown = [[Curve(curve.seeds[fresh], curve.trajectories) for _, curve in chosen] for chosen in best]
    return summary(shares, norms, shown, [[plain(one) for one, _ in chosen] for chosen in best])


def plain(algorithm: Algorithm) -> dict[str, Any]:
    """The settings of an algorithm that are reported."""
    return {name: value for name, value in algorithm.settings.items() if name in ("eta", "alpha", "S0", "B", "m")}


def summary(
    shares: np.ndarray,
    norms: Sequence[float],
    curves: Sequence[Sequence[Curve]],
    settings: Sequence[Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the stored result: N(ε) and the slope for every problem, with intervals."""
    rows = []
    for mine, chosen, norm in zip(curves, settings, norms, strict=True):
        numbers, steepness = fitted(shares * norm, mine)
        interval = {"numbers": numbers.estimate.tolist(), "low": numbers.low.tolist(), "high": numbers.high.tolist()}
        slopes = {"slope": float(steepness.estimate), "slopes": steepness.draws.tolist()}
        rows.append({**interval, **slopes, "first": norm, "settings": list(chosen)})
    return {"share": shares.tolist(), "problems": rows}


def together(problems: Sequence[Mapping[str, Any]]) -> Interval:
    """The mean slope over problems, with an interval. A resample combines one resample of each problem."""
    draws = np.mean([part["slopes"] for part in problems], axis=0)
    known = draws[np.isfinite(draws)]  # in some resamples too few ε are reached, see `undefined`
    return percentiles(float(np.mean([part["slope"] for part in problems])), known if len(known) else draws)


def undefined(problems: Sequence[Mapping[str, Any]]) -> int:
    """The number of resamples in which the mean slope is undefined, because too few ε were reached."""
    return int((~np.isfinite(np.mean([part["slopes"] for part in problems], axis=0))).sum())
