"""Stable-Baselines3's PPO on Gymnasium's environments: one hidden layer of 64 tanh units, 128 steps of each a batch.

    python sb3_outside.py ENV ENVIRONMENTS SECONDS

The environments are stepped one after another in this process (DummyVecEnv, the library's default). Epochs and minibatches are
the library's. PyTorch has one thread: networks this small gain nothing from more, and on a busy machine its threads wait for
each other. The first batch is a warm-up and is not timed.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env

STEPS = 128


def main(env: str, count: str, seconds: str) -> None:
    torch.set_num_threads(1)
    envs = make_vec_env(env, int(count), seed=0)
    net = {"net_arch": [64], "activation_fn": torch.nn.Tanh}
    model = stable_baselines3.PPO("MlpPolicy", envs, n_steps=STEPS, policy_kwargs=net, device="cpu", seed=0)

    def train() -> None:
        model.learn(STEPS * int(count), reset_num_timesteps=False)

    train()
    before, start = model.num_timesteps, time.perf_counter()
    while (taken := time.perf_counter() - start) < float(seconds):
        train()
    result = {
        "steps_per_second": (model.num_timesteps - before) / taken,
        "peer": "Stable-Baselines3 PPO",
        "version": f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}, "
        f"gymnasium {gymnasium.__version__}",
        "setting": f"actor and critic of 64 tanh units, {count} environments x {STEPS} steps a batch, "
        f"{model.n_epochs} epochs of minibatches of {model.batch_size} a batch, {torch.get_num_threads()} threads",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
