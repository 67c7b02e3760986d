"""Stable-Baselines3 or sb3-contrib at their defaults on a Gymnasium task: what one seed learns, and its CPU time.

    python sb3_learning.py KIND ENV STEPS SEED        KIND is PPO, A2C, TRPO, or zoo: PPO at rl-zoo's settings

One environment and one thread, as `KIND("MlpPolicy", ENV)` has. Prints one JSON line: the returns of 20 new episodes with
sampled actions and with the mode, and the CPU seconds of training.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time
from typing import Any

import gymnasium
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

EPISODES = 20


def model_of(kind: str, env: str, seed: int) -> Any:
    algorithm = getattr(sb3_contrib if kind == "TRPO" else stable_baselines3, kind)
    return algorithm("MlpPolicy", make_vec_env(env, 1, seed=seed), seed=seed, device="cpu")


def main(kind: str, env: str, steps: str, seed: str) -> None:
    torch.set_num_threads(1)
    began = time.process_time()
    model = model_of(kind, env, int(seed))
    model.learn(int(steps))
    cpu = time.process_time() - began
    fresh = Monitor(gymnasium.make(env))
    fresh.reset(seed=10_000 + int(seed))
    returns = {}
    for name, deterministic in (("sampled", False), ("mode", True)):
        found, _ = evaluate_policy(model, fresh, EPISODES, deterministic, return_episode_rewards=True)
        returns[name] = found
    versions = {"stable-baselines3": stable_baselines3, "sb3-contrib": sb3_contrib, "torch": torch, "gymnasium": gymnasium}
    about = {"versions": {name: module.__version__ for name, module in versions.items()}}
    print(json.dumps({**returns, "cpu_seconds": cpu, "steps": model.num_timesteps, **about}))


if __name__ == "__main__":
    main(*sys.argv[1:])
