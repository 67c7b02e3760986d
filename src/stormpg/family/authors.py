"""The settings that authors published, as far as they carry over to the estimates of this library.

Step sizes of Adam, of steps of a given length and of diagonal mirror steps carry over, as do batch sizes and probabilities.
Plain steps do not: authors divide a gradient by the number of time steps, or do not say. IS-MBPG and HA-MBPG are converted for
episodes of their length of 100 steps: with d/100 instead of d, η becomes η/100, the factor of Σ‖d‖² its 100⁻², c 100² c, and a
component's limit 100 times as large. What is not listed here has the default of its constructor.
"""

from collections.abc import Mapping
from typing import Any

from stormpg import paper

EVERYWHERE = ""  # for all tasks
LENGTH = 100  # time steps of an episode of IS-MBPG's Cart-Pole


def scaled(eta: float, c: float, w: float) -> dict[str, float]:
    """The settings of the program of IS-MBPG and HA-MBPG, with its factor 5 of Σ‖d‖² and its α of at least 0.3."""
    return {"eta": eta / LENGTH, "c": c * LENGTH**2, "w": w, "factor": 5 / LENGTH**2, "floor": 0.3, "weight_high": 1.2}


def hybrid(eta: float, S0: int, B: int) -> dict[str, Any]:
    """The settings of HSPGA's program: β = 0.99, restarted after three small batches."""
    return {"eta": eta, "alpha": 0.01, "S0": S0, "B": B, "restart": 3}


HYBRID = {
    "cartpole": hybrid(0.005, 20, 3),
    "acrobot": hybrid(0.005, 25, 5),
    "mountain-car-continuous": hybrid(0.003, 50, 5),
    "gym:InvertedPendulum-v5": hybrid(0.001, 50, 5),
    "gym:Swimmer-v5": hybrid(0.0005, 50, 5),
}
SMALL_STEPS = {"eta": 0.1}  # of length γ_0 = 0.1 at first
DEFENSIVE: dict[str, Any] = {"S0": 100, "B": 10, "b": 0.5}

SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "is-mbpg": {"cartpole": scaled(0.75, 1.0, 1.0) | {"largest": 0.05 * LENGTH, "B": 50}},
    "is-mbpg-star": {"cartpole": scaled(0.75, 1.0, 1.0) | {"factor": 0.03, "largest": 0.05 * LENGTH, "B": 50}},
    "ha-mbpg": {"cartpole": scaled(0.75, 3.0, 2.0) | {"weight_low": 0.8, "B": 50}},
    "vr-bgpo": {
        "cartpole": {"eta": 0.0015, "k": 0.75, "c": 100.0, "weight_low": 0.2, "weight_high": 1.2},
        "acrobot": {"eta": 0.00125, "k": 0.0175, "c": 48000.0, "weight_low": 0.2, "weight_high": 1.2},
        "gym:InvertedPendulum-v5": {"eta": 0.02, "k": 0.75, "c": 40.0, "weight_low": 0.2, "weight_high": 1.2},
    },
    "n-harpg": {EVERYWHERE: SMALL_STEPS},
    "n-pg-igt": {EVERYWHERE: SMALL_STEPS},
    "page-pg": {env: {"eta": 0.001, "p": 0.6, "S0": 50, "B": 5} for env in ("cartpole", "acrobot")},
    "hspga": HYBRID,
    "prox-hspga": {env: {**settings, "penalty": 0.001 * settings["eta"]} for env, settings in HYBRID.items()},
    "def-storm-pg": {"cartpole": DEFENSIVE | {"alpha": 0.9}},
    "def-svrpg": {"cartpole": DEFENSIVE | {"m": 10}},
    "def-srvr-pg": {"cartpole": DEFENSIVE | {"m": 10}},
    "def-page-pg": {"cartpole": DEFENSIVE | {"p": 0.5}},
    "storm-plus": {EVERYWHERE: {"eta": 1.0}},
    "mars-pg": {EVERYWHERE: {"eta": 0.006, "alpha": 0.05, "scale": 0.025}},
    "rt-pg": {"cartpole": {"eta": 0.01, "K": 8, "B": 5}},
    "pois": {"cartpole": {"S0": 100, "failure": 0.99, "iterations": 10}},
    "storm-npg": {EVERYWHERE: {"alpha": 0.2, "S0": 32}},
}


def settings_for(env: str, algorithm: str) -> dict[str, Any]:
    """The published settings of a pair; empty if there are none, so that the defaults of the constructor apply."""
    published = SETTINGS.get(algorithm, {})
    return paper.settings_for(env, algorithm) or dict(published.get(env, published.get(EVERYWHERE, {})))
