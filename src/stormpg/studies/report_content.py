"""The content of a report as data: one mapping from which the page, the tables and claims.json are generated."""

import itertools
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from stormpg.algorithms import make_algorithm
from stormpg.report.palette import MANY, subject
from stormpg.runs.run_folder import plain
from stormpg.statistics import Interval, probability_of_improvement, profile, stream
from stormpg.studies import summary
from stormpg.studies.protocols import PROTOCOLS, Curve, Curves
from stormpg.studies.study import Task
from stormpg.studies.verdicts import multiplicity

THRESHOLDS = 60  # points of a performance profile
AS_GIVEN = "(a), (b)"  # the protocols with the paper's settings, defaults or those of the command
MOST_RUNS = 50  # single runs of an algorithm on the page
EARLY, GAINED = 0.2, 0.9  # see `early`


def environment(task: Task, curves: Curves) -> dict[str, Any]:
    """The curves, profiles and comparisons for an environment."""
    names = list(dict.fromkeys(name for algorithms in curves.values() for name in algorithms))
    shown = curves["all"]
    scores = {name: curve.runs.mean(axis=1) for name, curve in shown.items()}
    everything = np.concatenate(list(scores.values()))
    thresholds = np.linspace(everything.min(), everything.max(), THRESHOLDS)
    return {
        "name": task.env,
        "title": task.title,
        "note": task.note,
        "ceiling": task.ceiling,
        "grid": next(iter(shown.values())).grid,
        "log": early(shown),
        "algorithms": {
            name: {
                "curves": {
                    key: drawn(algorithms[name], PROTOCOLS[key].name)
                    for key, algorithms in curves.items()
                    if name in algorithms
                },
                "runs": single_runs({key: algorithms[name] for key, algorithms in curves.items() if name in algorithms}),
            }
            for name in names
        },
        "profiles": {
            "thresholds": thresholds,
            "algorithms": {
                name: bounds(profile(score, thresholds, stream("profile", task.env, name))) for name, score in scores.items()
            },
        },
        "improvement": [
            {"x": x, "y": y, **bounds(probability_of_improvement(scores[x], scores[y], stream("pair", task.env, x, y)))}
            for x, y in pairs(list(scores))
        ],
    }


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs that are compared: all, or with many algorithms those with the subject of the report."""
    about = subject(names)
    both = [(x, y) for y, x in itertools.combinations(names, 2)]
    return both if len(names) <= MANY else [(x, y) if x == about else (y, x) for x, y in both if about in (x, y)]


def early(curves: Mapping[str, Curve]) -> bool:
    """Whether a logarithmic axis shows more: half of the curves make most of their gain early in the budget."""
    shares = []
    for curve in curves.values():
        gain = np.nan_to_num(curve.interval.estimate - curve.interval.estimate[0])
        reached = int(np.argmax(gain >= GAINED * gain.max())) if gain.max() > 0 else -1
        shares.append(curve.grid[reached] / curve.grid[-1])
    return bool(np.mean(np.array(shares) <= EARLY) >= 0.5)


def single_runs(curves: Mapping[str, Curve]) -> dict[str, Any]:
    """The single runs under each protocol. Those that are runs of protocol `all` are not repeated: only their places are."""
    made: dict[str, Any] = {}
    for key, curve in curves.items():
        rows = [int(row) for row in curve.rows if row < MOST_RUNS]
        if key == "all" or PROTOCOLS[key].tuned:
            made[key] = [[number(value, 4) for value in run] for run in curve.runs[:MOST_RUNS]]
        else:
            made[key] = {"of": "all", "rows": rows}
    return made


def drawn(curve: Curve, statistic: str) -> dict[str, Any]:
    """The data of a curve."""
    return {"statistic": statistic, "grid": curve.grid, **bounds(curve.interval), "seeds": len(curve.runs)}


def bounds(interval: Interval) -> dict[str, Any]:
    """The estimate and the interval around it."""
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def settings_rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The settings used for every curve."""
    return [
        settings_row(task.env, name, protocol, settings, task.algorithms.get(name))
        for task in tasks
        for protocol, chosen in ((AS_GIVEN, task.settings), (PROTOCOLS["tuned"].short, task.tuned_settings))
        for name, settings in chosen.items()
    ]


def settings_row(env: str, name: str, protocol: str, given: Mapping[str, Any], algorithm: str | None) -> dict[str, Any]:
    """All settings of a curve, with the names of those that are not defaults. `algorithm`: None if `given` are all of them."""
    settings = dict(given)
    if algorithm is not None:
        own = {key: value for key, value in given.items() if key in make_algorithm(algorithm).settings}  # not the policy's
        settings = {**plain(make_algorithm(algorithm, **own).settings), **settings}
    return {
        "env": env,
        "algorithm": name,
        "protocol": protocol,
        "settings": settings,
        "given": [] if algorithm is None else list(given),
    }


def content(
    title: str,
    subtitle: str,
    tasks: Sequence[Task],
    curves: Mapping[str, Curves],
    claims: Sequence[Mapping[str, Any]] = (),
    heatmaps: Sequence[Mapping[str, Any]] = (),
    variance: Sequence[Mapping[str, Any]] = (),
    commands: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The complete report as plain Python data: dicts, lists, numbers and strings."""
    used = dict.fromkeys(key for c in curves.values() for key in c)
    words = {key: PROTOCOLS[key].words(most_seeds(curves, key)) for key in used}
    plain: dict[str, Any] = simple(
        {
            "title": title,
            "subtitle": subtitle,
            "notes": list(notes),
            "protocols": words,
            "first": "all",  # the protocol that is shown first: all seeds
            "findings": summary.paragraph({task.env: curves[task.env] for task in tasks}, claims),
            "claims": list(claims),
            "multiplicity": multiplicity(claims, {key: one["short"] for key, one in words.items()}),
            "environments": [environment(task, curves[task.env]) for task in tasks],
            "heatmaps": list(heatmaps),
            "variance": list(variance),
            "settings": settings_rows(tasks),
            "commands": list(commands),
            "versions": versions(),
        }
    )
    return plain


def most_seeds(curves: Mapping[str, Curves], key: str) -> int:
    """The largest number of seeds of a curve under a protocol."""
    return max(curve.seeds for of_env in curves.values() for curve in of_env.get(key, {}).values())


def versions() -> dict[str, str]:
    """The versions of the libraries, and the device."""
    import optax
    import scipy

    from stormpg.version import __version__

    platform_name, kind = jax.default_backend(), jax.devices()[0].device_kind
    return {
        "stormpg": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "device": kind if kind == platform_name else f"{platform_name}: {kind}",
    }


def simple(value: Any) -> Any:
    """Convert to JSON types: arrays to lists, floats rounded to five digits, and None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): simple(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return simple(value.tolist())
    if isinstance(value, list | tuple):
        return [simple(part) for part in value]
    if isinstance(value, float | np.floating):
        return number(value)
    return int(value) if isinstance(value, np.integer) else value


def number(value: Any, digits: int = 5) -> float | None:
    """A number with this many significant digits; None for NaN and infinity."""
    return float(f"{value:.{digits}g}") if np.isfinite(value) else None
