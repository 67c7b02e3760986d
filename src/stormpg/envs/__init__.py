"""The built-in environments by name."""

import inspect
from collections.abc import Callable
from typing import Any

from stormpg.envs.acrobot import acrobot
from stormpg.envs.base import Box, Discrete, Environment
from stormpg.envs.cartpole import cartpole, cartpole_continuous
from stormpg.envs.chain import chain
from stormpg.envs.lqr import lqr
from stormpg.envs.mountain_car import mountain_car_continuous
from stormpg.envs.pendulum import pendulum
from stormpg.envs.rllab_cartpole import rllab_cartpole
from stormpg.envs.rllab_mountain_car import rllab_mountain_car
from stormpg.errors import InputError, choose, nearest

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "cartpole": cartpole,
    "cartpole-continuous": cartpole_continuous,
    "rllab-cartpole": rllab_cartpole,
    "rllab-mountain-car": rllab_mountain_car,
    "mountain-car-continuous": mountain_car_continuous,
    "pendulum": pendulum,
    "acrobot": acrobot,
    "lqr": lqr,
    "chain": chain,
}


def make(name: str, **settings: Any) -> Environment:
    """The built-in environment of this name: `make("cartpole-continuous")`, `make("lqr", state_dim=5)`."""
    constructor = ENVIRONMENTS[choose("environment", name, ENVIRONMENTS)]
    known = inspect.signature(constructor).parameters
    for setting in settings:
        if setting not in known:
            raise InputError(f"{name} has no setting {setting!r}: {nearest(setting, known) if known else 'it has none'}.")
    return constructor(**settings)


__all__ = ["ENVIRONMENTS", "Box", "Discrete", "Environment", "make"]
