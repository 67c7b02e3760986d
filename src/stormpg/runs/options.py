"""Conversion of flags and a TOML file to the arguments of `train`: their names, types and defaults.

The settings are read from the signatures of the constructors, so the settings of a new algorithm become flags automatically.
"""

import contextlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_type_hints

import tomli_w

from stormpg.algorithms import ALGORITHMS, DEFAULT, Algorithm, check_type, make_algorithm
from stormpg.algorithms.registry import defaults_of
from stormpg.algorithms.settings import POSITIVE, Setting
from stormpg.algorithms.settings import shown as shown_value
from stormpg.engine.budget import TRAJECTORIES
from stormpg.envs import AnyEnvironment, make
from stormpg.errors import InputError, choose, nearest, shown
from stormpg.files import reading, write_text
from stormpg.paper import settings_for
from stormpg.policies.constructors import KINDS, policy_of_algorithm
from stormpg.policies.descriptions import describe_policy

RUN_OPTIONS: dict[str, type] = {
    "env": str,
    "algorithm": str,
    "trajectories": int,
    "steps": int,
    "seeds": int,
    "seed": int,
    "horizon": int,
}
POLICY_OPTIONS: dict[str, type] = {"policy": str, "hidden": str, "sigma": float, "learn_sigma": bool, "normalise": bool}
POLICY_SETTINGS = {
    "policy": Setting("kind of policy; by default the one that fits the environment", values=", ".join(KINDS)),
    "hidden": Setting("sizes of the hidden layers, such as 64,64"),
    "sigma": Setting("standard deviation of a Gaussian policy", "σ", POSITIVE),
    "learn_sigma": Setting("learn σ"),
    "normalise": Setting("normalise observations by their running mean and deviation"),
}
OUTSIDE_OPTIONS: dict[str, type] = {"async_envs": bool, "env_timeout": float}  # for environments outside JAX
DEFAULTS: dict[str, Any] = {"algorithm": DEFAULT, "seeds": 30, "seed": 0}


def algorithm_options() -> dict[str, type]:
    """All settings of all algorithms, with their types."""
    options: dict[str, type] = {}
    for constructor in ALGORITHMS.values():
        hints = get_type_hints(inspect.unwrap(constructor))
        for name in inspect.signature(constructor).parameters:
            options[name] = str if isinstance(hints[name], UnionType) else hints[name]
    return options


def read_toml(file: Path) -> dict[str, Any]:
    """Read a file of defaults. Its keys are the names of the flags, without leading dashes and with _ instead of -."""
    content = reading.read_toml(file, "--config")
    known = RUN_OPTIONS | OUTSIDE_OPTIONS | POLICY_OPTIONS | algorithm_options()
    for name, value in content.items():
        if name not in known:
            raise InputError(f"{file} has an unknown key {shown(name)}: {nearest(name[:80], known)}.")
        if name == "hidden" and isinstance(value, list | int):
            continue
        try:
            check_type(name, value, known[name])
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    return content


def without_secrets(text: str) -> str:
    """Remove user names, passwords and queries from all URLs in a text."""
    return re.sub(r"(://[^\s?]*)\?\S*", r"\1", re.sub(r"://[^\s/@]*@", "://", text))


def write_toml(file: Path, content: Mapping[str, Any]) -> None:
    """Write a file that `read_toml` can read."""
    write_text(file, tomli_w.dumps(content))


def from_flag(name: str, value: Any, kind: type) -> Any:
    """Convert the text of a flag to its type. Raises InputError if that is not possible."""
    if isinstance(value, str) and kind in (int, float):
        with contextlib.suppress(ValueError):
            value = kind(value)
    check_type(name, value, kind)
    return value


class Job:
    """All arguments of `train`, resolved from flags (which take precedence), a TOML file, the paper's tables and defaults."""

    def __init__(self, flags: Mapping[str, Any], config: Path | None = None) -> None:
        known = RUN_OPTIONS | OUTSIDE_OPTIONS | POLICY_OPTIONS | algorithm_options()
        given = read_toml(config) if config else {}
        given |= {name: from_flag(name, value, known[name]) for name, value in flags.items() if value is not None}
        if "env" not in given:
            raise InputError("no environment was given: name one (see `stormpg list`), or set env in the --config file.")
        self.own = given
        self.given = given = DEFAULTS | given
        self.env: AnyEnvironment = make(given["env"], **outside_settings(given))
        name = choose("algorithm", given["algorithm"], ALGORITHMS)
        own = {k: v for k, v in given.items() if k in algorithm_options()}
        self.algorithm: Algorithm = make_algorithm(name, **(settings_for(self.env.name, name) | own))
        self.policy = policy_of_algorithm(self.env, self.algorithm.policy.content, **policy_settings(given))
        self.trajectories, self.steps = given.get("trajectories"), given.get("steps")
        self.seeds, self.seed = given["seeds"], given["seed"]
        self.horizon: int | None = given.get("horizon")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the algorithm and the policy that were given explicitly."""
        return {name: value for name, value in self.own.items() if name in algorithm_options() | POLICY_OPTIONS}

    def words(self) -> str:
        """What is run, in a few lines: budget, all settings, and where they differ from the defaults in Python."""
        name, settings = self.algorithm.name, self.algorithm.settings
        budget = [f"{self.steps} steps"] if self.steps else []
        budget += [f"{self.trajectories or TRAJECTORIES} trajectories"] if self.trajectories or not self.steps else []
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        lines = [f"{name} on {self.env.name}, {seeds} of {' or '.join(budget)}", f"Algorithm: {listed(settings)}"]
        policy = describe_policy(self.policy)
        if policy is not None:
            kind, own = policy["kind"], {key: value for key, value in policy.items() if key not in ("kind", "scaled")}
            lines.append(f"Policy: {kind} {listed(own)}".strip())
        tables = {key: value for key, value in settings_for(self.env.name, name).items() if key not in self.own}
        if tables:
            defaults = defaults_of(ALGORITHMS[name])
            others = {key: defaults[key] for key, value in tables.items() if value != defaults[key]}
            python = f"; the defaults in Python: {listed(others)}" if others else ""
            lines.append(f"From the paper's table: {listed(tables)}{python}")
        return "\n".join(lines)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `train`."""
        return {
            "env": self.env,
            "algorithm": [self.algorithm],
            "trajectories": self.trajectories,
            "steps": self.steps,
            "seeds": self.seeds,
            "seed": self.seed,
            "horizon": self.horizon,
            "policy": self.policy,
        }


def listed(settings: Mapping[str, Any]) -> str:
    """Settings with their values, in one line."""
    texts = {k: ",".join(map(str, value)) if isinstance(value, list) else shown_value(value) for k, value in settings.items()}
    return " ".join(f"{name}={text}" for name, text in texts.items())


def outside_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an environment outside JAX is created with."""
    settings: dict[str, Any] = {"asynchronous": given.get("async_envs"), "timeout": given.get("env_timeout")}
    settings = {name: value for name, value in settings.items() if value is not None and value is not False}
    if settings and not str(given["env"]).startswith(("gym:", "box2d:")):
        raise InputError(
            f"--async-envs and --env-timeout are only for gym: and box2d: environments: leave them out for {given['env']}."
        )
    if "timeout" in settings and not settings["timeout"] > 0:
        raise InputError(f"env_timeout is {settings['timeout']}; expected a number of seconds above 0.")
    return settings


def policy_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the policy among those given, as the arguments of `policy_for`."""
    found = {"kind" if name == "policy" else name: given[name] for name in POLICY_OPTIONS if name in given}
    return found | ({"hidden": hidden_sizes(found["hidden"])} if "hidden" in found else {})


def hidden_sizes(value: Any) -> tuple[int, ...]:
    """Parse layer sizes: (64, 64) from "64,64" or [64, 64], and (64,) from 64."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    try:
        sizes = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        sizes = (0,)
    if min(sizes, default=0) < 1:
        raise InputError(f"hidden is {value!r}; expected sizes of at least 1 separated by commas, such as 64,64.")
    return sizes
