"""Stable-Baselines3: CartPole, one hidden layer of 64 tanh units, 10 environments x 100 steps per batch.

    python sb3.py KIND SECONDS        KIND is A2C or PPO

The environments are Gymnasium's, stepped one after another in this process (DummyVecEnv, the library's default and the
fastest for such cheap steps). A2C makes one update per batch, as a policy gradient does. PPO keeps the library's epochs and
minibatches, so it does more work per step. Both have a critic, a second network of the same shape. The first batches are
a warm-up and are not timed.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

ENVIRONMENTS, STEPS, HORIZON = 10, 100, 100
BATCHES_A_CALL = 5


def main(kind: str = "A2C", seconds: str = "5") -> None:
    if kind not in ("A2C", "PPO"):
        sys.exit(f"KIND is A2C or PPO, not {kind}")
    limit = {"max_episode_steps": HORIZON}
    envs = make_vec_env("CartPole-v1", ENVIRONMENTS, seed=0, env_kwargs=limit, vec_env_cls=DummyVecEnv)
    model = getattr(stable_baselines3, kind)(
        "MlpPolicy",
        envs,
        n_steps=STEPS,
        policy_kwargs={"net_arch": [64], "activation_fn": torch.nn.Tanh},
        device="cpu",
        seed=0,
    )

    def train() -> None:
        model.learn(BATCHES_A_CALL * ENVIRONMENTS * STEPS, reset_num_timesteps=False)

    train()
    before, start = model.num_timesteps, time.perf_counter()
    while (taken := time.perf_counter() - start) < float(seconds):
        train()
    steps = model.num_timesteps - before

    lengths = [episode["l"] for episode in model.ep_info_buffer]
    updates = "1 update a batch" if kind == "A2C" else f"{model.n_epochs} epochs of minibatches of {model.batch_size} a batch"
    result = {
        "steps_per_second": steps / taken,
        "peer": f"Stable-Baselines3 {kind}",
        "version": f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}, "
        f"gymnasium {gymnasium.__version__}",
        "setting": f"actor 4-64-2 and critic 4-64-1, tanh, {ENVIRONMENTS} environments x {STEPS} steps a batch, "
        f"{updates}, {torch.get_num_threads()} threads; "
        f"last {len(lengths)} episodes {sum(lengths) / len(lengths):.0f} steps of at most {HORIZON}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
