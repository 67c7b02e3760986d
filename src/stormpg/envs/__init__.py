"""The built-in environments by name."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from stormpg.envs import (
    acrobot,
    cartpole,
    chain,
    lqr,
    mountain_car,
    pendulum,
    rllab_cartpole,
    rllab_mountain_car,
)
from stormpg.envs.base import Box, Discrete, Environment
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


def make(name: str, **settings: Any) -> Environment:
    """The built-in environment of this name: `make("cartpole-continuous")`, `make("lqr", state_dim=5)`."""
    constructor = ENVIRONMENTS[choose("environment", name, ENVIRONMENTS)]
    known = inspect.signature(constructor).parameters
    for setting in settings:
        if setting not in known:
            raise InputError(f"{name} has no setting {setting!r}: {nearest(setting, known) if known else 'it has none'}.")
    return dataclasses.replace(constructor(**settings), settings=settings)


__all__ = ["ENVIRONMENTS", "Box", "Discrete", "Environment", "make"]
