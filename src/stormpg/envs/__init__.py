"""Environments by name: the built-in ones, and those of other libraries with a prefix."""

import dataclasses
import importlib
import inspect
import os
import re
from collections.abc import Callable
from typing import Any

from stormpg.envs import acrobot, cartpole, chain, lqr, mountain_car, pendulum, rllab_cartpole, rllab_mountain_car
from stormpg.envs.base import OWN, AnyEnvironment, Box, Discrete, Environment, MultiDiscrete, OutsideEnvironment
from stormpg.errors import InputError, choose, nearest

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "cartpole": cartpole.cartpole,
    "cartpole-continuous": cartpole.cartpole_continuous,
    "rllab-cartpole": rllab_cartpole.rllab_cartpole,
    "rllab-mountain-car": rllab_mountain_car.rllab_mountain_car,
    "mountain-car-continuous": mountain_car.mountain_car_continuous,
    "pendulum": pendulum.pendulum,
    "acrobot": acrobot.acrobot,
    "lqr": lqr.lqr,
    "chain": chain.chain,
}

ADAPTERS = {  # prefix: the adapter module, the package it needs, and the extra that installs the package
    "gym": ("stormpg.envs.gym", "gymnasium", "gym"),
    "envpool": ("stormpg.envs.envpool", "envpool", "envpool"),
    "box2d": ("stormpg.envs.box2d", "Box2D", "box2d"),
    "gymnax": ("stormpg.envs.gymnax", "gymnax", "gymnax"),
    "brax": ("stormpg.envs.brax", "brax", "brax"),
}


def make(name: str, **settings: Any) -> Any:
    """Return the environment with this name, an `Environment` or an `OutsideEnvironment`.

    Examples: `make("cartpole-continuous")`, `make("lqr", state_dim=5)`, `make("gym:Hopper-v5")`.
    """
    prefix, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if prefix == OWN:
        raise InputError(
            f"{name[:80]} was given as an object, a class or a function and cannot be made from a name: give env=."
        )
    if colon:
        return adapter(prefix).make(rest, **settings)
    if isinstance(name, str) and name not in ENVIRONMENTS and is_gymnasium(name):
        raise InputError(f"unknown environment {name!r}: it is a Gymnasium environment, use 'gym:{name}'.")
    constructor = ENVIRONMENTS[choose("environment", name, ENVIRONMENTS)]
    known = inspect.signature(constructor).parameters
    for setting in settings:
        if setting not in known:
            raise InputError(f"{name} has no setting {setting!r}: {nearest(setting, known) if known else 'it has none'}.")
    return dataclasses.replace(constructor(**settings), settings=settings)


def is_gymnasium(name: str) -> bool:
    """Whether Gymnasium has an environment with this name. If Gymnasium is not installed, whether the name looks like one."""
    try:
        return name in importlib.import_module("gymnasium").registry
    except ImportError:
        return re.fullmatch(r"[\w/-]+-v\d+", name) is not None


def adapter(prefix: str) -> Any:
    """Return the module that adapts environments of another library. Raise InputError if the library is not installed."""
    module, package, extra = ADAPTERS[choose("kind of environment", prefix, ADAPTERS)]
    backend = os.environ.get("MPLBACKEND")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{prefix}: environments need {package} ({error}): pip install 'stormpg[{extra}]'.") from None
    if backend is None:  # EnvPool sets it, and the figures of a notebook would no longer be shown
        os.environ.pop("MPLBACKEND", None)
    return importlib.import_module(module)


def as_environment(thing: Any) -> Any:
    """Return an environment from a name, an environment, or a Gymnasium environment or factory."""
    if isinstance(thing, str):
        return make(thing)
    return thing if isinstance(thing, AnyEnvironment) else adapter("gym").adapt(thing)


__all__ = [
    "ADAPTERS",
    "ENVIRONMENTS",
    "AnyEnvironment",
    "Box",
    "Discrete",
    "Environment",
    "MultiDiscrete",
    "OutsideEnvironment",
    "as_environment",
    "make",
]
