"""The findings of a comparison in one paragraph, written from its data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stormpg.statistics import interval, iqm, probability_of_improvement, stream
from stormpg.studies.protocols import Curve, Curves
from stormpg.studies.verdicts import FAILS, HOLDS, UNCLEAR

ALL, TUNED = "all", "tuned"  # the protocols that the paragraph is about
FEW = 3  # with more algorithms at the top, only the first is named


def paragraph(environments: Mapping[str, Curves], claims: Sequence[Mapping[str, Any]] = ()) -> str:
    """Which algorithm leads where, and how many claims hold. Leading: a larger mean return over whole runs."""
    seeds = sorted({curve.seeds for curves in environments.values() for curve in curves[ALL].values()})
    count = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    parts = []
    for protocol, words in ((ALL, f"On all {count} seeds"), (TUNED, "Equally tuned")):
        several = {env: curves for env, curves in environments.items() if len(curves.get(protocol, ())) > 1}
        if len(environments) == 1:
            (curves,) = environments.values()
            found = [leading(several, protocol)] if several else []
            measure = "the mean return over whole runs (IQM) is " if protocol == ALL else ""
            found += [f"{measure}{figures(curves[protocol])}"] if protocol in curves else []
            parts += [f"{words}, {': '.join(found)}."] if found else []
        elif several:
            by = ", by the mean return over whole runs:" if protocol == ALL else ","
            parts.append(f"{words}{by} {leading(several, protocol)}.")
    return " ".join([*parts, *counted(claims, ALL)])


def leading(environments: Mapping[str, Curves], protocol: str) -> str:
    """Which algorithm leads in each environment, or that none does."""
    alone: dict[str, list[str]] = {}
    others = []
    for env, curves in environments.items():
        first, close = leaders({name: curve.runs.mean(axis=1) for name, curve in curves[protocol].items()}, env)
        if not close:
            alone.setdefault(first, []).append(env)
        elif len(close) < FEW:
            others.append(f"{code([first, *close])} are not clearly apart on {code([env])}")
        else:
            others.append(f"none leads clearly on {code([env])}, where {code([first])} is highest")
    return "; ".join([*(f"{code([name])} leads on {code(envs)}" for name, envs in alone.items()), *others])


def leaders(scores: Mapping[str, np.ndarray], env: str) -> tuple[str, list[str]]:
    """The algorithm with the highest IQM, and those that it is not clearly better than: P(better) may be a half.

    A run without a return, because it diverged, is worse than all others.
    """
    scores = {name: np.where(np.isnan(of_runs), -np.inf, of_runs) for name, of_runs in scores.items()}
    ranked = sorted(scores, key=lambda name: -float(iqm(scores[name])))
    first, *rest = ranked

    def clear(other: str) -> bool:
        return bool(probability_of_improvement(scores[first], scores[other], stream("pair", env, first, other)).low > 0.5)

    return first, [other for other in rest if not clear(other)]


def figures(curves: Mapping[str, Curve]) -> str:
    """The scores of the best two algorithms with their intervals."""
    found = {name: interval(curve.runs.mean(axis=1), iqm, stream("score", name)) for name, curve in curves.items()}
    best = sorted(found, key=lambda name: -float(np.nan_to_num(found[name].estimate, nan=-np.inf)))[:2]
    words = [f"{found[n].estimate:.4g} ({found[n].low:.4g} to {found[n].high:.4g}) for {code([n])}" for n in best]
    return " and ".join(words)


def counted(claims: Sequence[Mapping[str, Any]], protocol: str, words: str = "on all seeds") -> list[str]:
    """A sentence on how many claims hold under a protocol."""
    found = [result["verdict"] for claim in claims if (result := claim["results"].get(protocol))]
    if not found:
        return []
    hold, fail, unclear = (found.count(verdict) for verdict in (HOLDS, FAILS, UNCLEAR))
    verbs = "holds" if hold == 1 else "hold", "does" if fail == 1 else "do"
    return [f"Of {len(found)} claims, judged {words}, {hold} {verbs[0]}, {fail} {verbs[1]} not and {unclear} cannot be told."]


def code(names: Iterable[str]) -> str:
    """Names as code in a sentence."""
    *some, last = [f"`{' '.join(name.replace('`', chr(39)).split())}`" for name in names]
    return f"{', '.join(some)} and {last}" if some else last
