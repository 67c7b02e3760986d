"""The register of algorithms: what one is, and how a constructor gets its name."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeAlias, get_type_hints

import optax

from stormpg.algorithms.settings import Choices, Range, arguments, tuned
from stormpg.contract import Step, Tracker
from stormpg.errors import InputError, choose, nearest
from stormpg.estimators import Estimator
from stormpg.pytrees import Aside, record, static
from stormpg.schedules import Schedule

Optimizer: TypeAlias = str | Callable[..., Any] | optax.GradientTransformation
P = ParamSpec("P")


@record
class Algorithm:
    """One row of the table: estimator × tracker × schedule × step. Its floats are traced, everything else is static."""

    estimator: Estimator
    tracker: Tracker
    schedule: Schedule
    step: Step
    name: str = static(default="custom")
    policy: Aside = static(default_factory=lambda: Aside({}))  # recommended settings of `policy_for`, used if none is given
    note: Aside = static(default_factory=lambda: Aside({}))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The arguments of its constructor, including defaults."""
        settings: Mapping[str, Any] = self.note.content
        return settings


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {}
DEFAULT = "window-npg"  # what `train`, `Agent` and the command use if no algorithm is given


def algorithm(name: str) -> Callable[[Callable[P, Algorithm]], Callable[P, Algorithm]]:
    """Register a constructor under a name, and check its arguments against its annotations."""

    def register(function: Callable[P, Algorithm]) -> Callable[P, Algorithm]:
        signature, hints = inspect.signature(function), get_type_hints(function)

        @functools.wraps(function)
        def constructor(*args: P.args, **settings: P.kwargs) -> Algorithm:
            for key in settings:
                if key not in signature.parameters:
                    raise InputError(f"{name} has no setting {key!r}: {nearest(key, signature.parameters)}{others_with(key)}.")
            bound = signature.bind(*args, **settings)
            bound.apply_defaults()
            for key, value in bound.arguments.items():
                check_type(key, value, hints[key])
            return dataclasses.replace(function(*bound.args, **bound.kwargs), name=name, note=Aside(dict(bound.arguments)))

        constructor.__doc__ = documentation(function)
        ALGORITHMS[name] = constructor
        return constructor

    return register


def documentation(function: Callable[..., Algorithm]) -> str:
    """The docstring of a constructor, followed by its settings."""
    lines = [f"    {line}" for line in arguments(defaults_of(function))]
    about = inspect.getdoc(function) or ""
    return "\n".join((about, "", "Args:", *lines)).strip() + "\n" if lines else about


def defaults_of(constructor: Callable[..., Algorithm]) -> dict[str, Any]:
    """The settings of a constructor with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(constructor).parameters.items()}


def tuned_values(name: str) -> dict[str, Range | Choices]:
    """The settings of the algorithm with this name that are tuned, with their values."""
    return tuned(defaults_of(ALGORITHMS[name]))


def float_ranges(name: str) -> dict[str, Range]:
    """The float settings of the algorithm with this name that are tuned, with their ranges."""
    return {key: values for key, values in tuned_values(name).items() if isinstance(values, Range)}


def others_with(setting: str) -> str:
    """A hint which algorithms have a setting, for error messages."""
    known = [name for name, constructor in ALGORITHMS.items() if setting in inspect.signature(constructor).parameters]
    if not known:
        return ""
    more = f" and {len(known) - 3} others" if len(known) > 3 else ""
    return f". It is a setting of {', '.join(known[:3])}{more}: name the algorithm"


def check_type(name: str, value: Any, expected: Any) -> None:
    """Raise InputError if a setting does not have its annotated type. A float setting takes any real number."""
    number = not isinstance(value, bool | str) and (isinstance(value, int | float) or hasattr(value, "dtype"))
    wanted = {
        float: (number, "a number"),
        int: (isinstance(value, int) and not isinstance(value, bool), "a whole number"),
        bool: (isinstance(value, bool), "true or false"),
        str: (isinstance(value, str), "a name"),
    }
    good, what = wanted.get(expected, (True, ""))
    if not good:
        raise InputError(f"{name} is {value!r}; expected {what}.")


def make_algorithm(name: str, **settings: Any) -> Algorithm:
    """Make the algorithm with this name and these settings."""
    return ALGORITHMS[choose("algorithm", name, ALGORITHMS)](**settings)
