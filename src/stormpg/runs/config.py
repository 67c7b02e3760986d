"""Validation of config.json in a run's folder."""

import itertools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormpg.engine.budget import LIMIT
from stormpg.errors import InputError, shown
from stormpg.files import READABLE
from stormpg.files.reading import MOST_LETTERS, conforms, read_object

MOST_SEEDS = 10**6
MOST_STEPS = 10**6  # of an episode
MOST_SETTINGS = 10**5
MOST_PARAMETERS = 10**8  # of a policy
MOST_LAYERS = 64
KINDS: dict[str, Any] = {
    "env": str,
    "env_settings": dict[str, Any],
    "algorithm": str,
    "settings": list[dict[str, Any]],
    "policies": list[dict[str, Any] | None],
    "trajectories": int,
    "seeds": list[int],
    "horizon": int,
}
POLICY: dict[str, Any] = {
    **{"kind": str, "hidden": list[int], "sigma": float, "learn_sigma": bool, "normalise": bool | str},
    **{"sigma_step": float, "sigma_batch": int, "output_scale": float},
    "scaled": bool | list[list[float]],
}


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and validate the config.json of a run's folder."""
    file = Path(folder) / "config.json"
    if not os.path.lexists(file):
        raise InputError(f"{folder} holds no run: it contains no config.json. Give a folder written by `stormpg train --out`.")
    config = read_object(file, "the config of a run")
    if config.get("format") not in READABLE or isinstance(config["format"], bool):
        raise InputError(f"{file} has format {shown(config.get('format'))}; this version reads {READABLE}.")
    return checked(config, file)


def checked(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the config if it is valid. Raises InputError with the name of the invalid entry otherwise."""
    for name, kind in KINDS.items():
        if not conforms(config.get(name), kind):
            words = getattr(kind, "__name__", kind) if kind in (int, str) else str(kind)
            limit = f" of at most {MOST_LETTERS} characters" if kind is str else ""
            raise InputError(f"{file} has {name} = {shown(config.get(name))}; expected {words}{limit}.")
    seeds, settings, policies, block = config["seeds"], config["settings"], config["policies"], config.get("block")
    steps, identity = config.get("steps"), config.get("identity", {})
    right = {
        "seeds": 0 < len(seeds) <= MOST_SEEDS and all(0 <= s <= LIMIT for s in seeds) and len(set(seeds)) == len(seeds),
        "settings": 0 < len(settings) <= MOST_SETTINGS,
        "policies": len(policies) == len(settings),
        "horizon": 1 <= config["horizon"] <= MOST_STEPS,
        "trajectories": 1 <= config["trajectories"] <= LIMIT,
        "steps": steps is None or (conforms(steps, int) and 1 <= steps <= LIMIT),
        "identity": conforms(identity, dict[str, dict[str, Any]]),
        "block": block is None or (conforms(block, int) and 1 <= block <= len(seeds) * len(settings)),
    }
    for name, good in right.items():
        if not good:
            raise InputError(f"{file} has {name} = {shown(config[name])}, which is not valid for a run.")
    return config


def policy_settings(about: Mapping[str, Any], inputs: int, file: Path) -> dict[str, Any]:
    """The settings of a policy, as the arguments of `policy_for`. `inputs`: the size of an observation."""
    right = all(name in POLICY and conforms(value, POLICY[name]) for name, value in about.items())
    sizes = (inputs, *about.get("hidden", ())) if right else ()
    if right and len(sizes) <= MOST_LAYERS and min(sizes) >= 1 and max(sizes) <= MOST_PARAMETERS:
        parameters = sum(math.prod(pair) for pair in itertools.pairwise(sizes))
        if parameters <= MOST_PARAMETERS:
            return {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    raise InputError(f"{file} describes a policy that is not valid for a run: {shown(dict(about), 120)}.")
