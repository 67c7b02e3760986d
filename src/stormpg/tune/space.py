"""Search spaces: which settings of an algorithm and its policy are tuned, and over which values."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormpg.algorithms import ALGORITHMS, check_type
from stormpg.algorithms.registry import defaults_of, tuned_values
from stormpg.algorithms.settings import Choices, Range
from stormpg.errors import InputError, nearest, shown
from stormpg.files.reading import read_toml
from stormpg.runs.options import POLICY_OPTIONS, algorithm_options

Space = Mapping[str, Range | Choices]

GAUSSIAN: Space = {"sigma": Range(0.1, 1.0, log=True)}


def space_for(algorithm: str, gaussian: bool) -> dict[str, Range | Choices]:
    """The default space of an algorithm; `gaussian`: its policy has a σ that is not learned."""
    return {**tuned_values(algorithm), **(GAUSSIAN if gaussian else {})}


def read_space(file: Path, algorithm: str) -> dict[str, Range | Choices]:
    """Read a space from a TOML file: a table for each setting, with low and high (and log), or with choices."""
    return space_of(read_toml(file, "--space"), algorithm, str(file))


def space_of(content: Mapping[str, Any], algorithm: str, file: str) -> dict[str, Range | Choices]:
    """The space that the tables of a file describe; also the inverse of `plain`."""
    own = defaults_of(ALGORITHMS[algorithm])
    types = {name: kind for name, kind in algorithm_options().items() if name in own} | POLICY_OPTIONS
    for name in content:
        if name not in types:
            known = nearest(name[:80], types)
            raise InputError(f"{file} names {shown(name)}, which {algorithm} and its policy do not have: {known}.")
    if not content:
        raise InputError(f"{file} names no setting; expected a table such as [eta] with low and high.")
    return {name: dimension(f"{file}: [{name}]", name, given, types[name]) for name, given in content.items()}


def dimension(where: str, name: str, given: Any, kind: type) -> Range | Choices:
    """The values that one table of the file describes."""
    keys = set(given) if isinstance(given, dict) else set()
    if keys == {"choices"} and isinstance(given["choices"], list) and given["choices"]:
        for value in given["choices"]:
            checked(where, name, value, kind)
        return Choices(tuple(given["choices"]))
    if not {"low", "high"} <= keys <= {"low", "high", "log"} or kind not in (int, float):
        numbers = "low and high (and log), or " if kind in (int, float) else ""
        raise InputError(f"{where} is {shown(given)}; expected {numbers}choices, a list.")
    low, high, log = given["low"], given["high"], given.get("log", False)
    for value in (low, high):
        checked(where, name, value, kind)
    if not low < high or not isinstance(log, bool) or (log and low <= 0):
        raise InputError(f"{where} goes from {low} to {high}, log = {log}; expected low < high, and low > 0 if log is true.")
    return Range(float(low), float(high), log) if kind is float else Range(low, high, log)


def checked(where: str, name: str, value: Any, kind: type) -> None:
    """InputError if a value is not a finite one of this type."""
    try:
        check_type(name, value, kind)
    except InputError as error:
        raise InputError(f"{where} {error}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} has {value}; expected finite numbers.")


def distributions(space: Space) -> dict[str, Any]:
    """The space as Optuna's distributions."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    def one(values: Range | Choices) -> Any:
        if isinstance(values, Choices):
            return CategoricalDistribution(values.values)
        low, high = values.low, values.high
        if isinstance(low, int) and isinstance(high, int):
            return IntDistribution(low, high, log=values.log)
        return FloatDistribution(low, high, log=values.log)

    return {name: one(values) for name, values in space.items()}


def within(space: Space, name: str, value: Any) -> bool:
    """Whether the space contains this value of a setting."""
    values = space.get(name)
    if values is None or isinstance(values, Choices):
        return values is not None and value in values.values
    return bool(values.low <= value <= values.high)


def ends(values: Range | Choices) -> tuple[Any, ...]:
    """The values that are checked before a search starts."""
    return values.values if isinstance(values, Choices) else (values.low, values.high)


def plain(space: Space) -> dict[str, Any]:
    """The space as JSON stores it."""
    return {
        name: {"choices": list(v.values)} if isinstance(v, Choices) else {"low": v.low, "high": v.high, "log": v.log}
        for name, v in space.items()
    }
