"""The empirical sentences of the paper's §7, each one a row: what it says, what is measured, what counts as true.

A row is measured under each protocol and ends in one of VERDICTS: it holds if its whole interval is where the sentence
says, it does not hold if the whole interval is elsewhere, and it cannot be told if the interval is in both.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stormpg.experiments.paper import CLAIMED_MAXIMUM
from stormpg.experiments.protocols import Curve
from stormpg.stats import Interval, percentiles

HOLDS, FAILS, UNCLEAR, UNMEASURED = VERDICTS = ("holds", "does not hold", "cannot be told", "not measured")

NEAR_MAXIMUM = 0.99  # of the largest return: the curve has reached the maximum
ABOUT = 1.5  # "about N" is between N / 1.5 and 1.5 N
REASONABLE = 0.9  # of the way from the first return to STORM-PG's last one: a reasonable result
STABLE = 0.05  # of that way: a curve that falls no further below its end is stable

Algorithms = Mapping[str, Curve]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper as an inequality: low ≤ quantity ≤ high."""

    id: str
    sentence: str
    quantity: str
    paper: str  # its number
    needs: int  # trajectories without which it cannot be measured
    measure: Callable[[Algorithms], Interval]
    low: float = -np.inf
    high: float = np.inf
    infinite: str = "never"  # what an infinite figure means

    def verdict(self, found: Interval) -> str:
        if np.isnan([found.estimate, found.low, found.high]).any():
            return UNCLEAR
        if self.low <= found.low and found.high <= self.high:
            return HOLDS
        return FAILS if found.high < self.low or found.low > self.high else UNCLEAR


def judge(claim: Claim, curves: Mapping[str, Algorithms]) -> dict[str, dict[str, str]]:
    """The claim's figure, interval and verdict under each protocol; none where an algorithm or a part of it is missing."""
    results = {}
    for protocol, algorithms in curves.items():
        if any(curve.grid[-1] < claim.needs for curve in algorithms.values()):
            continue
        found = claim.measure(algorithms)
        results[protocol] = {
            "figure": show(found.estimate, claim.infinite),
            "interval": f"{show(found.low, claim.infinite)} to {show(found.high, claim.infinite)}",
            "verdict": claim.verdict(found),
        }
    return results


def show(number: Any, infinite: str = "∞") -> str:
    value = float(number)
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return infinite if value > 0 else f"−{infinite}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def reaches_maximum(name: str) -> Callable[[Algorithms], Interval]:
    """The maximum is where the best curve of the protocol ends."""

    def measure(algorithms: Algorithms) -> Interval:
        maximum = max(float(curve.interval.estimate[-1]) for curve in algorithms.values())
        return algorithms[name].reach(NEAR_MAXIMUM * maximum)

    return measure


def lead(fast: str, slow: str) -> Callable[[Algorithms], Interval]:
    """How many trajectories earlier `fast` reaches the maximum; not a number where neither does."""

    def measure(algorithms: Algorithms) -> Interval:
        a, b = (reaches_maximum(name)(algorithms) for name in (slow, fast))
        with np.errstate(invalid="ignore"):
            return percentiles(a.estimate - b.estimate, _pairs(a.draws, b.draws, np.subtract))

    return measure


def _pairs(a: np.ndarray, b: np.ndarray, function: Callable[..., np.ndarray]) -> np.ndarray:
    """Two independent bootstraps, resample against resample."""
    return function(a, b) if len(a) == len(b) else function(a[:1], b[:1])


def ahead_at(x: int, ours: str, other: str) -> Callable[[Algorithms], Interval]:
    def measure(algorithms: Algorithms) -> Interval:
        a, b = algorithms[ours].at(x), algorithms[other].at(x)
        return percentiles(a.estimate - b.estimate, _pairs(a.draws, b.draws, np.subtract))

    return measure


def way(algorithms: Algorithms) -> tuple[float, float]:
    """The first return of all algorithms and STORM-PG's last one; not a number where it has not certainly gained."""
    first = float(np.mean([c.interval.estimate[0] for c in algorithms.values()]))
    ours = algorithms["storm-pg"].interval
    return first, float(ours.estimate[-1]) if ours.low[-1] > first else np.nan


def unsteadiness(x: int) -> Callable[[Algorithms], Interval]:
    """The deepest fall of STORM-PG's curve below its own end after x, as a share of what it has gained."""

    def measure(algorithms: Algorithms) -> Interval:
        curve, (first, last) = algorithms["storm-pg"], way(algorithms)
        fall = lambda y: (y[..., -1:] - y[..., curve.grid >= x]).max(axis=-1) / (last - first)
        return percentiles(fall(curve.interval.estimate), fall(curve.interval.draws))

    return measure


def reasonable(name: str) -> Callable[[Algorithms], Interval]:
    def measure(algorithms: Algorithms) -> Interval:
        first, last = way(algorithms)
        return algorithms[name].reach(first + REASONABLE * (last - first))

    return measure


def shortfall(name: str) -> Callable[[Algorithms], Interval]:
    """How far below STORM-PG's end another one ends, as a share of what STORM-PG has gained."""

    def measure(algorithms: Algorithms) -> Interval:
        first, last = way(algorithms)
        a, b = algorithms["storm-pg"].interval, algorithms[name].interval
        gap = lambda a, b: (a[..., -1] - b[..., -1]) / (last - first)
        return percentiles(gap(a.estimate, b.estimate), _pairs(a.draws, b.draws, gap))

    return measure


def cart_pole_claims() -> list[Claim]:
    rows = [
        Claim(
            f"cart-pole/{name}/maximum",
            f"{name} reaches the maximum at about {at} trajectories",
            f"trajectories until {NEAR_MAXIMUM:.0%} of where the best curve ends; about: a factor of {ABOUT}",
            f"about {at}",
            at,
            reaches_maximum(name),
            at / ABOUT,
            at * ABOUT,
        )
        for name, at in CLAIMED_MAXIMUM.items()
    ]
    rows.append(
        Claim(
            "cart-pole/storm-pg/within-500",
            "storm-pg has reached the maximum by 500 trajectories",
            f"trajectories until {NEAR_MAXIMUM:.0%} of where the best curve ends",
            "500",
            500,
            reaches_maximum("storm-pg"),
            high=500,
        )
    )
    rivals = {name: at for name, at in CLAIMED_MAXIMUM.items() if name != "storm-pg"}
    rows += [
        Claim(
            f"cart-pole/storm-pg/lead/{name}",
            f"storm-pg converges faster than {name}",
            f"trajectories by which {name} reaches the maximum later",
            f"about {at - CLAIMED_MAXIMUM['storm-pg']}",
            at,
            lead("storm-pg", name),
            low=1,
            infinite="∞",
        )
        for name, at in rivals.items()
    ]
    rows += [
        Claim(
            f"cart-pole/{name}/lead/gpomdp",
            f"{name} converges faster than gpomdp",
            "trajectories by which gpomdp reaches the maximum later",
            f"about {CLAIMED_MAXIMUM['gpomdp'] - rivals[name]}",
            CLAIMED_MAXIMUM["gpomdp"],
            lead(name, "gpomdp"),
            low=1,
            infinite="∞",
        )
        for name in ("svrpg", "srvr-pg")
    ]
    return rows


def mountain_car_claims() -> list[Claim]:
    rows = [
        Claim(
            f"mountain-car/storm-pg/ahead-at-200/{name}",
            f"storm-pg outperforms {name} within the first 200 trajectories",
            "difference of returns at 200 trajectories",
            "above 0",
            200,
            ahead_at(200, "storm-pg", name),
            low=1e-9,
        )
        for name in ("svrpg", "srvr-pg")
    ]
    rows.append(
        Claim(
            "mountain-car/storm-pg/stable-by-600",
            "storm-pg is in a stable zone within 600 trajectories",
            f"deepest fall below its end after 600, as a share of its gain; stable: at most {STABLE:.0%}",
            "about 0",
            1000,
            unsteadiness(600),
            high=STABLE,
        )
    )
    rows += [
        Claim(
            f"mountain-car/{name}/late",
            f"{name} takes at least 1000 trajectories to a reasonable result",
            f"trajectories until {REASONABLE:.0%} of the way to storm-pg's end",
            "at least 1000",
            1000,
            reasonable(name),
            low=1000,
        )
        for name in ("svrpg", "srvr-pg")
    ]
    rows.append(
        Claim(
            "mountain-car/gpomdp/does-not-converge",
            "gpomdp does not converge well",
            f"how far below storm-pg it ends, as a share of storm-pg's gain; not well: at least {1 - REASONABLE:.0%}",
            "not shown",
            1000,
            shortfall("gpomdp"),
            low=1 - REASONABLE,
        )
    )
    return rows


def as_row(claim: Claim, env: str, results: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{claim.id}@{env}",
        "env": env,
        "sentence": claim.sentence,
        "quantity": claim.quantity,
        "paper": claim.paper,
        "results": dict(results),
    }


def count_verdicts(rows: Sequence[Mapping[str, Any]], protocol: str) -> dict[str, int]:
    """How many rows end in each verdict under a protocol."""
    found = [row["results"].get(protocol, {}).get("verdict", UNMEASURED) for row in rows]
    return {verdict: found.count(verdict) for verdict in VERDICTS}
