"""The paper's tables and figures as data, and the settings of an (environment, algorithm) pair."""

from typing import Any, NamedTuple

# Table 2, γ = 0.99 and H = 100.
CART_POLE: dict[str, dict[str, Any]] = {
    "gpomdp": {"eta": 0.005, "S0": 25, "gamma": 0.99},
    "svrpg": {"eta": 0.0075, "B": 10, "m": 3, "S0": 25, "gamma": 0.99},
    "srvr-pg": {"eta": 0.005, "B": 5, "m": 3, "S0": 25, "gamma": 0.99},
    "storm-pg": {"eta": 0.01, "B": 5, "S0": 10, "alpha": 0.9, "gamma": 0.99},
}

# Table 3, γ = 0.99 and H = 1000. It has no row for GPOMDP, which "does not converge well".
MOUNTAIN_CAR: dict[str, dict[str, Any]] = {
    "svrpg": {"eta": 0.028, "B": 8, "m": 2, "S0": 91, "gamma": 0.99},
    "srvr-pg": {"eta": 0.018, "B": 9, "m": 2, "S0": 11, "gamma": 0.99},
    "storm-pg": {"eta": 0.01, "B": 5, "S0": 10, "alpha": 0.79, "gamma": 0.99},
}

# Both readings of each environment: the text and rllab's for Cart-Pole, rllab's and Gym's for Mountain-Car.
TABLES = {
    "cartpole-continuous": CART_POLE,
    "rllab-cartpole": CART_POLE,
    "rllab-mountain-car": MOUNTAIN_CAR,
    "mountain-car-continuous": MOUNTAIN_CAR,
}

# "It reaches the maximum value at approximately ..." trajectories, on Cart-Pole.
CLAIMED_MAXIMUM = {"gpomdp": 3000, "svrpg": 1500, "srvr-pg": 1500, "storm-pg": 500}


class Figure(NamedTuple):
    """A figure of §7 in one reading of its environment."""

    number: int
    env: str
    title: str
    trajectories: int
    ceiling: float | None  # the largest return, where there is one
    algorithms: tuple[str, ...] = ("gpomdp", "svrpg", "srvr-pg", "storm-pg")


# The first of each number is the reading that the figure of that number is drawn from.
FIGURES = (
    Figure(1, "cartpole-continuous", "Cart-Pole, +1 a step (the paper's text)", 4000, 100.0),
    Figure(1, "rllab-cartpole", "Cart-Pole of rllab (the paper's program)", 4000, 1000.0),
    Figure(2, "rllab-mountain-car", "Mountain-Car of rllab (the paper's text)", 1500, None),
    Figure(2, "mountain-car-continuous", "Mountain-Car of Gym", 1500, None),
)


def settings_for(env: str, algorithm: str) -> dict[str, Any]:
    """The paper's settings of a pair; empty if the paper has none, so that the defaults of the constructor apply."""
    return dict(TABLES.get(env, {}).get(algorithm, {}))
