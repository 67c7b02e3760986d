"""The ranges over which the float settings of an algorithm are tuned."""

import inspect
from typing import NamedTuple

from stormpg.algorithms.registry import ALGORITHMS


class Range(NamedTuple):
    """The numbers, or the whole numbers, from `low` to `high`; `log`: sampled on a logarithmic scale."""

    low: float
    high: float
    log: bool = False


# The size of a step depends on its kind (of Adam, of a given length, plain), so its range is relative to the default.
RELATIVE, SMALLEST, LARGEST = ("eta", "delta", "c"), 0.03, 10.0

# By the setting's name, so that a new algorithm has ranges at once.
RANGES = {
    "alpha": Range(0.05, 1.0, log=True),
    "decay": Range(0.5, 1.0),
    "kappa": Range(0.3, 10.0, log=True),
    "critic_share": Range(0.1, 0.9),
    "w": Range(1.0, 100.0, log=True),
    "p": Range(0.1, 0.9),
    "b": Range(0.1, 0.7),
    "scale": Range(0.01, 1.0, log=True),
}


def float_ranges(algorithm: str) -> dict[str, Range]:
    """The float settings of an algorithm that are tuned, with their ranges."""
    settings = inspect.signature(ALGORITHMS[algorithm]).parameters
    around = {
        name: Range(SMALLEST * settings[name].default, LARGEST * settings[name].default, log=True)
        for name in RELATIVE
        if name in settings
    }
    return around | {name: values for name, values in RANGES.items() if name in settings}
