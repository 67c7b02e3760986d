"""Claims and verdicts: a sentence as an inequality, measured under each protocol, and the outcome.

The outcome is one of VERDICTS. A claim holds if its whole interval satisfies the inequality, does not hold if no part of the
interval does, and cannot be told if only a part does.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stormpg.statistics import LEVEL, RESAMPLES, Interval, percentiles
from stormpg.studies.protocols import Curve

Algorithms = Mapping[str, Curve]

HOLDS, FAILS, UNCLEAR, UNMEASURED = VERDICTS = ("holds", "does not hold", "cannot be told", "not measured")
DECIDED = (HOLDS, FAILS)


# A quantity is a function of all curves of a protocol, [..., grid] for each algorithm. It is computed from the estimated curves
# and again in each resample, so that thresholds that depend on curves vary with them.
Shapes = Mapping[str, np.ndarray]
Quantity = Callable[[Shapes, np.ndarray], np.ndarray]  # (curves, grid) -> values


def over_resamples(quantity: Quantity, *subjects: str) -> Callable[[Algorithms], Interval]:
    """Return a function that measures the quantity with its interval.

    `subjects` are the algorithms that it is about. Their numbers of seeds determine the width of the interval.
    """

    def measure(algorithms: Algorithms) -> Interval:
        grid = algorithms[subjects[0]].grid
        estimate = quantity({name: curve.interval.estimate for name, curve in algorithms.items()}, grid)
        draws = quantity({name: curve.interval.draws for name, curve in algorithms.items()}, grid)
        return percentiles(estimate, draws, *(algorithms[name].seeds for name in subjects))

    return measure


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of a paper as an inequality: low ≤ quantity ≤ high."""

    id: str
    sentence: str
    quantity: str
    paper: str  # the number in the paper
    needs: int  # number of trajectories needed to measure it
    measure: Callable[[Algorithms], Interval]
    low: float = -np.inf
    high: float = np.inf
    infinite: str = "never"  # the text for an infinite figure

    def verdict(self, found: Interval) -> str:
        """The verdict for a measured interval."""
        return self.side(found.estimate, found.low, found.high)

    def side(self, *numbers: Any) -> str:
        """HOLDS if all numbers are within the bounds, FAILS if all are above or all are below them, UNCLEAR otherwise."""
        if np.isnan(numbers).any():
            return UNCLEAR
        if self.low <= min(numbers) and max(numbers) <= self.high:
            return HOLDS
        return FAILS if max(numbers) < self.low or min(numbers) > self.high else UNCLEAR

    def unanimous(self, found: Interval) -> bool:
        """Whether the verdict is decided and all resamples agree with it."""
        return self.verdict(found) in DECIDED and self.side(found.estimate, found.draws.min(), found.draws.max()) in DECIDED


def judge(claim: Claim, curves: Mapping[str, Algorithms]) -> dict[str, dict[str, Any]]:
    """The figure, interval and verdict of a claim under each protocol. Protocols whose curves are too short are left out."""
    results = {}
    for protocol, algorithms in curves.items():
        if any(curve.grid[-1] < claim.needs for curve in algorithms.values()):
            continue
        found = claim.measure(algorithms)
        results[protocol] = {
            "figure": show(found.estimate, claim.infinite),
            "interval": f"{show(found.low, claim.infinite)} to {show(found.high, claim.infinite)}",
            "verdict": claim.verdict(found),
            "unanimous": claim.unanimous(found),
        }
    return results


def show(number: Any, infinite: str = "∞") -> str:
    """Format a figure with about three digits. `infinite`: the text for infinity."""
    value = float(number)
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return infinite if value > 0 else f"−{infinite}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def as_row(claim: Claim, env: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """A claim with its results, as data for a report."""
    return {
        "id": f"{claim.id}@{env}",
        "env": env,
        "sentence": claim.sentence,
        "quantity": claim.quantity,
        "paper": claim.paper,
        "results": dict(results),
    }


def count_verdicts(rows: Sequence[Mapping[str, Any]], protocol: str) -> dict[str, int]:
    """The number of rows with each verdict under a protocol."""
    found = [row["results"].get(protocol, {}).get("verdict", UNMEASURED) for row in rows]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def multiplicity(rows: Sequence[Mapping[str, Any]], protocols: Mapping[str, str]) -> str:
    """A note on multiple testing, or an empty string if no claim was tested. `protocols`: their labels.

    A claim counts as tested if its verdict comes from resamples. Claims that compare two runs bit by bit are not counted.
    """
    parts = []
    for key, label in protocols.items():
        tested = [row["results"][key] for row in rows if "unanimous" in row["results"].get(key, {})]
        decided = [result for result in tested if result["verdict"] in DECIDED]
        if tested:
            parts.append(
                f"{label}: {len(tested)} claims tested, {len(decided)} decided, about {len(tested) * (1 - LEVEL):.1f} to be "
                f"expected by chance, {sum(result['unanimous'] for result in decided)} decided alike in every resample"
            )
    if not parts:
        return ""
    return (
        f"Every interval is a {LEVEL:.0%} interval for one claim, not for all claims together: even if no claim had an answer, "
        f"about one in {1 / (1 - LEVEL):.0f} would be decided by chance. {'; '.join(parts)}. That all {RESAMPLES} resamples "
        "agree is about what a Bonferroni correction for that many claims asks for."
    )
