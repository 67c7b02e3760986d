"""The content of a report as data: one mapping from which the page, the tables and claims.json are generated."""

import itertools
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from stormpg.studies.protocols import PROTOCOLS, Curve, Curves
from stormpg.studies.statistics import Interval, probability_of_improvement, profile, stream
from stormpg.studies.study import Task
from stormpg.studies.verdicts import multiplicity

THRESHOLDS = 60  # points of a performance profile


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
        "ceiling": task.ceiling,
        "grid": next(iter(shown.values())).grid,
        "algorithms": {
            name: {
                "curves": {
                    key: drawn(algorithms[name], PROTOCOLS[key].name)
                    for key, algorithms in curves.items()
                    if name in algorithms
                },
                "runs": {key: algorithms[name].runs for key, algorithms in curves.items() if name in algorithms},
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
            for y, x in itertools.combinations(scores, 2)
        ],
    }


def drawn(curve: Curve, statistic: str) -> dict[str, Any]:
    """The data of a curve."""
    return {"statistic": statistic, "grid": curve.grid, **bounds(curve.interval), "seeds": len(curve.runs)}


def bounds(interval: Interval) -> dict[str, Any]:
    """The estimate and the interval around it."""
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def settings_rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The settings used for every curve."""
    return [
        {"env": task.env, "algorithm": name, "protocol": protocol, "settings": dict(settings)}
        for task in tasks
        for protocol, chosen in (("given", task.settings), ("tuned", task.tuned_settings))
        for name, settings in chosen.items()
    ]


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
    plain: dict[str, Any] = simple(
        {
            "title": title,
            "subtitle": subtitle,
            "notes": list(notes),
            "protocols": {
                key: {"short": PROTOCOLS[key].short, "label": PROTOCOLS[key].label, "note": PROTOCOLS[key].note} for key in used
            },
            "first": "all",  # the protocol that is shown first: all seeds
            "claims": list(claims),
            "multiplicity": multiplicity(claims, {key: PROTOCOLS[key].short for key in used}),
            "environments": [environment(task, curves[task.env]) for task in tasks],
            "heatmaps": list(heatmaps),
            "variance": list(variance),
            "settings": settings_rows(tasks),
            "commands": list(commands),
            "versions": versions(),
        }
    )
    return plain


def versions() -> dict[str, str]:
    """The versions of the libraries, and the device."""
    import optax
    import scipy

    from stormpg.version import __version__

    return {
        "stormpg": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "device": f"{jax.default_backend()}: {jax.devices()[0].device_kind}",
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
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
