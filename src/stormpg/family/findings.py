"""The report of the comparison as data: the map, gains, tolerance of settings, claims and curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stormpg import statistics
from stormpg.family import summary
from stormpg.family.cells import Cell, Runs
from stormpg.family.rows import REFERENCES, STORM
from stormpg.family.scores import NEAR, Cells, Score, gain, mean_score, scores, tolerance
from stormpg.family.summary import PARTS, as_text, sentence, sentence_table
from stormpg.family.tasks import Task
from stormpg.runs.table import WINDOW, Columns
from stormpg.statistics import Interval
from stormpg.studies import verdicts
from stormpg.studies.protocols import PROTOCOLS, Curves, curve
from stormpg.studies.report_content import drawn, early, settings_row, simple, versions
from stormpg.studies.verdicts import Claim, judge, multiplicity

POINTS = 25  # of a curve
NOTES = (
    "Published settings: those of the authors as far as they carry over (src/stormpg/family/authors.py), or else the defaults "
    "of the constructor. Many were chosen for longer runs: 5,000 trajectories and more.",
    "Equal tuning: each algorithm has the same number of configurations of its float settings (the default first, the others "
    "fill their ranges evenly), with the batch sizes of its constructor, on tuning seeds. The best one ran on fresh seeds.",
    "Score: the mean return over all trajectories of a run, 0 for STORM-PG's first batches, 1 for the best return of the task, "
    "at least −1. It is measured on the batches that an algorithm samples: those of ha-mbpg lie between two iterates, those of "
    "n-pg-igt ahead, and a share of def-* at the last one.",
    "Gain: the mean over tasks of the difference of interquartile means, on the same seeds, with an interval that resamples "
    "the seeds of each algorithm on each task.",
    f"Tolerance: the share of configurations of a tuning with a score at most {NEAR} below the best of the algorithm, on the "
    "tasks in JAX. It depends on the ranges, which are wider than those a careful user would try.",
    "Policies: window-npg recommends its own, with a learned σ; all others have the library's default, with σ = 1.",
    "REINFORCE, PGT and SVRPO, which the paper also compares, are in `stormpg reproduce --full`.",
)


def content(
    tasks: Sequence[Task],
    algorithms: Sequence[str],
    cells: Mapping[tuple[str, str], Cell],
    runs: Cells,
    claims: Sequence[tuple[str, Claim]],
    commands: Sequence[str],
) -> dict[str, Any]:
    """The complete report as plain data."""
    found = {part: scores(tasks, algorithms, runs, part) for part in PARTS}
    curves = {task.env: curves_of(task, algorithms, runs) for task in tasks}
    rows = [verdicts.as_row(claim, env, judge(claim, curves[env])) for env, claim in claims]
    others = [name for name in algorithms if name not in REFERENCES]
    gains = {
        (part, name, reference): gain(found[part], tasks, name, reference)
        for part in PARTS
        for reference in REFERENCES
        for name in algorithms
        if name != reference
    }
    tolerances = tolerated(tasks, algorithms, cells, runs)
    rows += robust_rows(tolerances)
    seeds = " and ".join(f"{n} seeds {where}" for where, n in seed_counts(cells).items())
    data = as_data(found, gains, tolerances, tasks, algorithms)
    plain: dict[str, Any] = simple(
        {
            "title": "The family of STORM-PG",
            "subtitle": f"{len(algorithms)} algorithms on {len(tasks)} tasks, {seeds}.",
            "findings": summary.paragraph(found["tuned"], tasks, algorithms, data, rows, seeds),
            "source": "the authors",
            "notes": list(NOTES),
            "protocols": {
                key: {"short": protocol.short, "label": protocol.label, "note": protocol.note}
                for key, protocol in PROTOCOLS.items()
            },
            "first": "tuned",
            "claims": rows,
            "multiplicity": multiplicity(rows, {key: protocol.short for key, protocol in PROTOCOLS.items()}),
            "environments": [environment(task, curves[task.env]) for task in tasks],
            "charts_first": True,
            "charts": [score_map(found[part], tasks, algorithms, words) for part, words in PARTS.items()],
            "tables": [gain_table(found, gains, tolerances, tasks, algorithms), sentence_table(gains, others)],
            "settings": settings_rows(cells, runs),
            "commands": list(commands),
            "versions": versions(),
            "scores": data,
        }
    )
    return plain


def curves_of(task: Task, algorithms: Sequence[str], runs: Cells) -> Curves:
    """The curves of all protocols on a task."""
    grid = np.unique(np.linspace(task.trajectories / POINTS, task.trajectories, POINTS).round().astype(int))

    def lines(columns: Columns) -> np.ndarray:
        return statistics.curves(columns, grid, min(WINDOW, task.trajectories // 4))

    parts = {name: (lines(runs[task.env, name].given), lines(runs[task.env, name].tuned)) for name in algorithms}
    return {
        key: {name: curve(np.nan_to_num(both[protocol.tuned]), grid, protocol, task.env, name) for name, both in parts.items()}
        for key, protocol in PROTOCOLS.items()
    }


def environment(task: Task, curves: Curves) -> dict[str, Any]:
    """The curves of a task for the page."""
    names = list(curves["all"])
    return {
        "name": task.env,
        "title": f"{task.env}, {task.trajectories} trajectories",
        "ceiling": None,
        "grid": curves["all"][names[0]].grid,
        "log": early(curves["tuned"]),
        "algorithms": {
            name: {"curves": {key: drawn(lines[name], PROTOCOLS[key].name) for key, lines in curves.items()}} for name in names
        },
    }


def score_map(
    found: Mapping[tuple[str, str], Score], tasks: Sequence[Task], algorithms: Sequence[str], words: str
) -> dict[str, Any]:
    """The map of algorithms × tasks, the best algorithm first, with the mean over tasks as the last column."""
    means = {name: float(mean_score(found, tasks, name).estimate) for name in algorithms}
    ranked = sorted(algorithms, key=lambda name: means[name])
    return {
        "section": "Scores",
        "title": f"Score of each algorithm, {words}",
        "x_name": "",
        "y_name": "",
        "x": [*(task.env.removeprefix("gym:") for task in tasks), "mean"],
        "y": ranked,
        "final": [[*(float(found[t.env, name].interval.estimate) for t in tasks), means[name]] for name in ranked],
        "label": "score",
        "range": [0.0, 1.0],
        "best": "columns",
        "note": "0: the first batches of STORM-PG; 1: the best return of the task. Means over whole runs, IQM over seeds.",
        "wide": True,
    }


def gain_table(found: Any, gains: Any, tolerances: Any, tasks: Sequence[Task], algorithms: Sequence[str]) -> dict[str, Any]:
    """The mean score of each algorithm, its gain over both references, and its tolerance of settings."""
    heads = ["algorithm", "score, tuned"]
    heads += [f"over {reference}, {words}" for reference in REFERENCES for words in PARTS.values()]
    ranked = sorted(algorithms, key=lambda name: -float(mean_score(found["tuned"], tasks, name).estimate))
    rows = []
    for name in ranked:
        over = [gains.get((part, name, reference)) for reference in REFERENCES for part in PARTS]
        share = tolerances.get(name)
        rows.append(
            [
                name,
                as_text(mean_score(found["tuned"], tasks, name)).replace("+", ""),
                *("–" if one is None else as_text(one.interval) for one in over),
                "–" if share is None else f"{float(share.estimate):.0%} ({float(share.low):.0%} to {float(share.high):.0%})",
            ]
        )
    caption = "Mean score over all tasks, gain over STORM-PG and over the default of the library, with 95 % intervals"
    return {"title": "Gains", "caption": caption, "heads": [*heads, "tolerated settings"], "rows": rows}


def tolerated(tasks: Sequence[Task], algorithms: Sequence[str], cells: Mapping[tuple[str, str], Cell], runs: Cells) -> Any:
    """The tolerance of settings of each algorithm, on the tasks in JAX."""
    inside = [task for task in tasks if not task.outside]
    if not inside:
        return {}
    return {
        name: tolerance(inside, runs, name, {t.env: cells[t.env, name].size.configurations for t in inside})
        for name in algorithms
    }


def robust_rows(tolerances: Mapping[str, Interval]) -> list[dict[str, Any]]:
    """SHARP's claim to need no tuning, as an inequality: it tolerates more settings than STORM-PG."""
    if not {"sharp", STORM} <= tolerances.keys():
        return []
    ours, theirs = tolerances["sharp"], tolerances[STORM]
    gap = statistics.percentiles(ours.estimate - theirs.estimate, ours.draws - theirs.draws)
    claim = Claim(
        f"sharp/tolerance/{STORM}",
        f"sharp depends less on its settings than {STORM}",
        f"share of configurations within {NEAR} of the best score: sharp's less {STORM}'s",
        "parameter-free",
        0,
        lambda _: gap,
        low=1e-9,
    )
    return [verdicts.as_row(claim, "all tasks in JAX", judge(claim, {"tuned": {}}))]


def seed_counts(cells: Mapping[tuple[str, str], Cell]) -> dict[str, int]:
    """The number of seeds of cells in JAX and outside."""
    return {("outside JAX" if cell.task.outside else "in JAX"): cell.size.seeds for cell in cells.values()}


def settings_rows(cells: Mapping[tuple[str, str], Cell], runs: Mapping[tuple[str, str], Runs]) -> list[dict[str, Any]]:
    """The settings of every cell."""
    return [
        settings_row(env, name, protocol, settings, name)
        for (env, name), cell in cells.items()
        for protocol, settings in (("published", cell.given().settings[0]), ("tuned", runs[env, name].chosen))
    ]


def as_data(found: Any, gains: Any, tolerances: Any, tasks: Sequence[Task], algorithms: Sequence[str]) -> dict[str, Any]:
    """All scores, gains and tolerances with intervals."""

    def three(one: Interval) -> list[float]:
        return [float(one.estimate), float(one.low), float(one.high)]

    return {
        "scores": {
            part: {name: {t.env: three(found[part][t.env, name].interval) for t in tasks} for name in algorithms}
            for part in PARTS
        },
        "means": {part: {name: three(mean_score(found[part], tasks, name)) for name in algorithms} for part in PARTS},
        "gains": {
            part: {name: {r: three(gains[part, name, r].interval) for r in REFERENCES if r != name} for name in algorithms}
            for part in PARTS
        },
        "tolerance": {name: three(share) for name, share in tolerances.items()},
        "sentences": {name: sentence(name, gains) for name in algorithms if name not in REFERENCES},
    }
