"""The numbers of docs/choose.md, from the stored comparison of the family and the stored table of what is learned."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.markdown import DOCS, Part, listed, page_of, plain, signed, span, stored, table
from docs.write_family import PARTS, STORED, counts, gain_cell
from docs.write_readme import latest

from stormpg.algorithms import DEFAULT
from stormpg.bench.learning import EVERY, LEARNERS, OURS, TASKS
from stormpg.family.rows import STORM
from stormpg.family.scores import GAINS, NEAR
from stormpg.family.tasks import TASKS as FAMILY_TASKS

# Groups of successors by what they change. An algorithm may be in one group only.
GROUPS = {
    "Hessian-vector products instead of importance weights": ("hapg", "sharp", "harpg", "n-harpg", "ha-mbpg"),
    "rules for α and η, with plain steps": ("is-mbpg", "is-mbpg-star", "storm-plus", "meta-storm"),
    "mirror or diagonal steps": ("bgpo", "vr-bgpo", "mars-pg"),
    "a large batch now and then": ("page-pg", "tsivr-pg", "def-page-pg", "def-svrpg", "def-srvr-pg"),
    "a second batch for the correction": ("hspga", "prox-hspga"),
    "natural-gradient steps along a tracked gradient": ("srvr-npg", "storm-npg"),
    "trajectories from a mixture of two policies": ("def-storm-pg",),
    "an extrapolated point, no weights": ("n-pg-igt",),
    "the last K batches": ("rt-pg",),
    "many steps from one batch": ("pois",),
}

Data = Mapping[str, Any]


def score(scores: Data, name: str) -> str:
    """The mean scores of an algorithm under both protocols."""
    given, tuned = (scores["means"][part][name] for part in PARTS)
    return f"score {plain(given[0])} as published, {span(tuned)} tuned"


def over_storm(scores: Data, name: str) -> str:
    """The gains of an algorithm over STORM-PG."""
    given, tuned = (span(scores["gains"][part][name][STORM], signed) for part in PARTS)
    return f"over STORM-PG {given} as published and {tuned} tuned"


def first_places(scores: Data, name: str, part: str) -> str:
    """On how many tasks an algorithm has the highest score."""
    every = scores["scores"][part]
    won = [env for env in every[name] if all(every[name][env][0] >= other[env][0] for other in every.values())]
    return f"{len(won)} of {len(every[name])}"


def advice(scores: Data) -> str:
    """What to take for what, with the numbers that say so."""
    means, tolerance = scores["means"]["tuned"], scores["tolerance"]
    given, tuned = (counts(scores, part, STORM)[GAINS] for part in PARTS)
    named = [listed(f"`{name}`" for name in found) if found else "none" for found in (given, tuned)]
    ahead = f"successors that gain over it: as published {named[0]}, tuned {named[1]}"
    easy = sorted((name for name in tolerance if means[name][0] >= means[STORM][0]), key=lambda name: -tolerance[name][0])[:3]
    shares = listed(f"{page_of(name)} {tolerance[name][0]:.0%}" for name in easy)
    rows = [
        (
            "a task of your own, in a few hundred episodes",
            f"{page_of(DEFAULT)}: the default",
            f"{score(scores, DEFAULT)}; the best score on {first_places(scores, DEFAULT, 'tuned')} tasks tuned and on "
            f"{first_places(scores, DEFAULT, 'given')} as it is",
        ),
        (
            "the method of the paper, which remembers one gradient; any optimiser",
            f"{page_of(STORM)} as published",
            f"{score(scores, STORM)}; {ahead}",
        ),
        ("a memory of several batches, and an optimiser such as Adam", page_of("rt-pg"), over_storm(scores, "rt-pg")),
        (
            "weights that cannot explode: long episodes, large steps",
            page_of("def-storm-pg"),
            f"weights of at most 1/b; {over_storm(scores, 'def-storm-pg')}",
        ),
        (
            "no importance weights at all",
            f"{page_of('bgpo')}, {page_of('n-pg-igt')}",
            f"{score(scores, 'bgpo')}; {score(scores, 'n-pg-igt')}",
        ),
        ("a plain baseline to compare with", page_of("gpomdp"), score(scores, "gpomdp")),
        (
            "settings that need little care",
            page_of(easy[0]),
            f"share of settings within {NEAR} of the best, among those that score at least as much as STORM-PG: {shares}",
        ),
    ]
    return table(("you want", "take", "measured"), rows)


def by_task(scores: Data) -> str:
    """The tuned scores on each task: the default, STORM-PG, and the best of the others."""
    every = scores["scores"]["tuned"]
    rows = []
    for task in FAMILY_TASKS:
        others = [name for name in every if name not in (DEFAULT, STORM)]
        best = max(others, key=lambda name: every[name][task.env][0])
        cells = [plain(every[name][task.env][0]) for name in (DEFAULT, STORM, best)]
        top = max(every[name][task.env][0] for name in (DEFAULT, STORM, best))
        shown = [f"**{c}**" if every[n][task.env][0] == top else c for n, c in zip((DEFAULT, STORM, best), cells, strict=True)]
        rows.append((f"`{task.env}`", str(task.trajectories), *shown, page_of(best)))
    return table(("task", "trajectories", f"`{DEFAULT}`", f"`{STORM}`", "best of the others", "which"), rows)


def by_group(scores: Data) -> str:
    """The successors by what they change, the best group first."""
    means = scores["means"]
    rows = []
    for words, names in sorted(GROUPS.items(), key=lambda group: -max(means["tuned"][name][0] for name in group[1])):
        own = [means["tuned"][name][0] for name in names]
        reach = plain(own[0]) if len(own) == 1 else f"{plain(min(own))} to {plain(max(own))}"
        ahead = [gain_cell(scores["gains"]["tuned"][name][STORM]) for name in names]
        cells = ", ".join(f"{page_of(name)} {gain}" for name, gain in zip(names, ahead, strict=True))
        rows.append((words, reach, cells))
    return table(("what they change", "scores, tuned", "gain over STORM-PG, tuned"), rows)


def elsewhere(rows: Sequence[Data]) -> str:
    """Where other libraries learn more, on Gymnasium's tasks at equal steps."""
    named = {row["name"]: row for row in rows}
    others = [one.name for one in LEARNERS if one.name != OURS and f"{EVERY}, {one.name}" in named]
    whole = {name: named[f"{EVERY}, {name}"]["values"] for name in (OURS, *others)}
    words = {name: f"{plain(value)} ({plain(low)} to {plain(high)})" for name, (low, value, high) in whole.items()}
    lines = []
    for name in others:
        better = []
        for task in TASKS:
            ours, theirs = named.get(f"{task.env}, {OURS}"), named.get(f"{task.env}, {name}")
            if ours and theirs and theirs["mean"] > ours["mean"]:
                better.append(f"{task.env} ({theirs['mean']:.0f}, ours {ours['mean']:.0f})")
        where = listed(better) if better else "none"
        lines.append((name, words[name], where))
    return (
        f"On {len(TASKS)} Gymnasium tasks at equal environment steps, the interquartile mean of all scores is {words[OURS]} "
        f"for `{DEFAULT}`, without any setting.\n\n" + table(("learner", "score", "higher mean return than ours on"), lines)
    )


def parts() -> Iterator[Part]:
    """What is written."""
    scores, page = stored(STORED / "scores.json"), DOCS / "choose.md"
    yield Part(page, "advice", advice(scores))
    yield Part(page, "tasks", by_task(scores))
    yield Part(page, "groups", by_group(scores))
    yield Part(page, "elsewhere", elsewhere(latest("learning")))
