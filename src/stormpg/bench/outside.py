"""Environments outside JAX: our training beside the environments alone, and beside Stable-Baselines3's PPO.

The environments alone are stepped with actions drawn before, without a policy, and reset when an episode ends: no training that
steps them one after another can be faster. All use 16 of them. Steps are steps inside episodes.
"""

import itertools
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import stormpg
from stormpg.bench.libraries import Peer
from stormpg.bench.measure import BenchTable, Row, Tell, in_turns, ratio
from stormpg.envs import adapter
from stormpg.errors import InputError

SLOTS = 16
STEPS = {  # of a measurement: enough that opening the environments, 0.2 s for MuJoCo, is a small part
    "gym:CartPole-v1": 200_000,
    "gym:HalfCheetah-v5": 160_000,
    "gym:Hopper-v5": 80_000,
    "envpool:HalfCheetah-v4": 160_000,
    "envpool:Hopper-v4": 160_000,
}
GYMNASIUMS = {"envpool:HalfCheetah-v4": "HalfCheetah-v5", "envpool:Hopper-v4": "Hopper-v5"}  # the same tasks, for PPO
ALONE, OURS, PPO = "the environments alone", "STORM-PG", "Stable-Baselines3 PPO"


class Training:
    """Measures a whole training from its start, after compilation, in thousand steps a second."""

    def __init__(self, name: str, steps: int) -> None:
        self.env, self.steps = stormpg.make(name), steps
        self.policy = stormpg.policy_for(self.env, hidden=(64,))

    def __call__(self) -> float:
        algorithm, began = stormpg.storm_pg(S0=SLOTS, B=SLOTS), time.perf_counter()
        result = stormpg.train(self.env, algorithm, steps=self.steps, seeds=1, policy=self.policy)
        return int(result.columns["steps"][-1]) / (time.perf_counter() - began) / 1e3


def gymnasium_alone(name: str, steps: int) -> float:
    """Thousand steps a second of Gymnasium's environments, stepped in a loop."""
    import gymnasium

    envs = [gymnasium.make(name) for _ in range(SLOTS)]
    every = []
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        env.action_space.seed(seed)
        every.append((env, itertools.cycle([env.action_space.sample() for _ in range(1000)])))
    began = time.perf_counter()
    for _ in range(steps // SLOTS):
        for env, actions in every:
            _, _, terminated, truncated, _ = env.step(next(actions))
            if terminated or truncated:
                env.reset()
    return steps / (time.perf_counter() - began) / 1e3


def envpool_alone(name: str, steps: int) -> float:
    """Thousand steps a second of an EnvPool, which resets by itself."""
    begin = adapter("envpool").begin

    pool, _ = begin(name, {}, range(SLOTS))
    pool.action_space.seed(0)
    actions = itertools.cycle([np.stack([pool.action_space.sample() for _ in range(SLOTS)]) for _ in range(100)])
    began = time.perf_counter()
    for _ in range(steps // SLOTS):
        pool.step(next(actions))
    return steps / (time.perf_counter() - began) / 1e3


def outside(folder: Path, quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """Three rows for each environment. `folder` holds the virtual environment of the peer."""
    rows: list[Row] = []
    for name, full in STEPS.items():
        kind, _, short = name.partition(":")
        steps = full // (8 if quick else 1)
        try:
            training = Training(name, steps)
        except InputError as error:
            rows.append(Row(name, [], {"missing": str(error)}))
            continue
        alone = {"gym": gymnasium_alone, "envpool": envpool_alone}[kind]
        tasks: dict[str, Callable[[], float]] = {
            f"{name}, {ALONE}": lambda alone=alone, short=short, steps=steps: alone(short, steps),  # type: ignore[misc]
            f"{name}, {OURS}": training,
        }
        theirs = GYMNASIUMS.get(name, short)
        label = f"{name}, {PPO}" if theirs == short else f"{name}, {PPO} on gym:{theirs}"
        python = folder / ".peers" / "bin" / "python"
        peer = Peer(python, "sb3_outside.py", (theirs, str(SLOTS)), 1.0 if quick else 4.0)
        missing = why_not(python, peer)
        if missing is None:
            tasks[label] = peer
        figures = in_turns(tasks, rounds, tell, warm=(label,))  # the script warms up by itself
        first, ours, *others = figures.items()
        rows += [
            Row(first[0], first[1]),
            Row(*ours, {"share of the environments": ratio(ours[1], first[1])}),
            *(Row(*one, {"ours, times PPO": ratio(ours[1], one[1])}) for one in others),
        ]
        if missing is not None:
            rows.append(Row(label, [], {"missing": missing}))
    note = (
        f"{SLOTS} environments, one hidden layer of 64; a whole training from its start, B = {SLOTS}. Ratios: the median over "
        "rounds. PPO keeps the library's epochs and trains a critic, so it does more work per step; it steps "
        "Gymnasium's environments."
    )
    return BenchTable("outside", "Environments outside JAX", "thousand steps a second", rows, note)


def why_not(python: Path, peer: Peer) -> str | None:
    """The reason why the peer cannot run; None if it can."""
    if not python.exists():
        return "there is no .peers here; `make peers` installs it"
    try:
        peer()
    except subprocess.CalledProcessError as error:
        return str((error.stderr.strip().splitlines() or ["the script failed"])[-1])
    return None
