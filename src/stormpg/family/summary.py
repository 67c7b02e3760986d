"""What the comparison found, in sentences: for the page, README.md and docs/family.md."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stormpg.algorithms import DEFAULT
from stormpg.family.rows import REFERENCES, STORM, SUCCESSORS
from stormpg.family.scores import GAINS, LOSES, OPEN, Score, gain
from stormpg.family.tasks import Task
from stormpg.statistics import Interval
from stormpg.studies.summary import code, counted

PARTS = {"given": "published settings", "tuned": "equally tuned"}


def paragraph(
    found: Mapping[tuple[str, str], Score],
    tasks: Sequence[Task],
    algorithms: Sequence[str],
    scores: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]],
    seeds: str,
) -> str:
    """Which algorithm leads on how many tasks, who gains over both references, and how many claims hold."""
    parts = [f"Equally tuned, with {seeds}, {leading(found, tasks, algorithms)}."]
    if any(name in SUCCESSORS for name in algorithms):
        parts.append(outcome(scores, "tuned", "Averaged over tasks,", "the successors of STORM-PG"))
    return " ".join([*parts, *counted(claims, "tuned", "on the tuned runs")])


def leading(found: Mapping[tuple[str, str], Score], tasks: Sequence[Task], algorithms: Sequence[str]) -> str:
    """On how many tasks each algorithm has a clearly higher score than all others."""
    alone: Counter[str] = Counter()
    for task in tasks:
        first, *rest = sorted(algorithms, key=lambda name: -float(found[task.env, name].interval.estimate))
        if all(gain(found, [task], first, other).verdict == GAINS for other in rest):
            alone[first] += 1
    parts = [f"{code([name])} leads on {count}" for name, count in alone.most_common()]
    if undecided := len(tasks) - alone.total():
        parts.append(f"none leads clearly on {undecided}")
    return f"of {len(tasks)} task{'s' * (len(tasks) != 1)} {', '.join(parts)}"


def verdict_of(three: Sequence[float]) -> str:
    """What a gain with this estimate and interval says."""
    _, low, high = three
    return GAINS if low > 0 else LOSES if high < 0 else OPEN


def outcome(scores: Mapping[str, Any], part: str, words: str, who: str = "they") -> str:
    """The scores under one protocol, and how many successors gain over both references, in a sentence."""
    means, gains = scores["means"][part], scores["gains"][part]
    successors = [name for name in means if name in SUCCESSORS]
    lowest, highest = min(means[n][0] for n in successors), max(means[n][0] for n in successors)
    parts = []
    for reference in REFERENCES:
        found = {v: [n for n in successors if verdict_of(gains[n][reference]) == v] for v in (GAINS, OPEN, LOSES)}
        parts.append(f"over {'the default' if reference == DEFAULT else 'STORM-PG'} {shares(found)}")
    return (
        f"{words} {who} score {lowest:.2f} to {highest:.2f}, STORM-PG {means[STORM][0]:.2f} and the default of the library "
        f"{means[DEFAULT][0]:.2f}: {'; '.join(parts)}."
    )


def shares(found: Mapping[str, Sequence[str]]) -> str:
    """Who gains, and how many show no clear difference or lose."""
    verb = "gain" if len(found[GAINS]) > 1 else "gains"
    clear = f"{len(found[OPEN])} show{'s' * (len(found[OPEN]) == 1)} no clear difference"
    return f"{code(found[GAINS]) if found[GAINS] else 'none'} {verb}, {clear} and {len(found[LOSES])} lose"


def as_text(one: Interval) -> str:
    """An estimate with its interval."""
    return f"{float(one.estimate):+.2f} ({float(one.low):+.2f} to {float(one.high):+.2f})"


def sentence(name: str, gains: Any) -> str:
    """What an algorithm gains over both references, in words."""
    parts = []
    for reference in REFERENCES:
        found = {part: gains[part, name, reference] for part in PARTS if (part, name, reference) in gains}
        if found:
            words = [f"{PARTS[part]} {one.verdict} ({as_text(one.interval)})" for part, one in found.items()]
            parts.append(f"against {reference}: {', '.join(words)}")
    whole = {one.verdict for (_, ours, _), one in gains.items() if ours == name}
    begin = (
        f"{name} gains nothing here"
        if GAINS not in whole
        else f"{name} gains"
        if LOSES not in whole
        else f"{name} gains in one comparison and loses in another"
    )
    return f"{begin}: {'; '.join(parts)}."


def sentence_table(gains: Any, others: Sequence[str]) -> dict[str, Any]:
    """A sentence for each algorithm."""
    rows = [[name, sentence(name, gains)] for name in others]
    caption = "Over all tasks, on the same seeds; numbers are differences of mean scores"
    return {"title": "In words", "caption": caption, "heads": ["algorithm", "what it gains"], "rows": rows, "long": True}
