"""GPOMDP hand-written in PyTorch: CartPole, one hidden layer of 64 tanh units, batches of 10 episodes.

    python torch_gpomdp.py SECONDS [MODE]        MODE is vector_entry_point (the default) or sync

A batch is 10 parallel episodes of at most 100 steps. The policy is categorical (4-64-2). The gradient is GPOMDP's, computed
with one forward pass over the batch; the baseline of a step is the mean over the episodes. Adam makes one update per batch.
The rollout builds no graph. Gymnasium has two vectorised forms of CartPole: `vector_entry_point` computes all copies in one
NumPy call and is the default of `make_vec`; `sync` (SyncVectorEnv) steps them one after another, as it would any other
environment. Steps after the end of an episode are neither used nor counted. The first batches are a warm-up and are not timed.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time

import gymnasium
import numpy as np
import torch

EPISODES, HORIZON, DISCOUNT, WARM_UP = 10, 100, 0.99, 50


def make_envs(mode: str) -> gymnasium.vector.VectorEnv:
    if mode == "sync":
        one = lambda: gymnasium.make("CartPole-v1", max_episode_steps=HORIZON)
        return gymnasium.vector.SyncVectorEnv([one] * EPISODES)
    return gymnasium.make_vec("CartPole-v1", num_envs=EPISODES, vectorization_mode=mode, max_episode_steps=HORIZON)


def rollout(envs: gymnasium.vector.VectorEnv, policy: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Play ten episodes: observations [t, episode, 4]; actions and whether the episode was still running, both [t, episode]."""
    observations = np.zeros((HORIZON, EPISODES, 4), np.float32)
    actions = np.zeros((HORIZON, EPISODES), np.int64)
    alive = np.zeros((HORIZON, EPISODES), np.float32)
    running = np.ones(EPISODES, bool)
    observation, _ = envs.reset()
    t = 0
    with torch.inference_mode():
        while t < HORIZON and running.any():
            probabilities = policy(torch.from_numpy(observation)).softmax(-1)
            action = torch.multinomial(probabilities, 1)[:, 0].numpy()
            observations[t], actions[t], alive[t] = observation, action, running
            observation, _, terminated, truncated, _ = envs.step(action)
            running &= ~(terminated | truncated)
            t += 1
    return torch.from_numpy(observations[:t]), torch.from_numpy(actions[:t]), torch.from_numpy(alive[:t])


def main(seconds: str = "5", mode: str = "vector_entry_point") -> None:
    torch.manual_seed(0)
    envs = make_envs(mode)
    envs.reset(seed=0)
    policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    optimiser = torch.optim.Adam(policy.parameters(), lr=3e-3)
    discounts = DISCOUNT ** torch.arange(HORIZON)[:, None]

    def update() -> int:
        observations, actions, alive = rollout(envs, policy)
        rewards = discounts[: len(alive)] * alive  # the reward is 1 for each step, and 0 after the end of an episode
        centred = rewards - rewards.mean(1, keepdim=True)
        to_go = centred.flip(0).cumsum(0).flip(0)
        scores = policy(observations).log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        loss = -(scores * alive * to_go).sum() / EPISODES
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return int(alive.sum())

    for _ in range(WARM_UP):
        update()
    steps = batches = 0
    start = time.perf_counter()
    while (taken := time.perf_counter() - start) < float(seconds):
        steps += update()
        batches += 1

    result = {
        "steps_per_second": steps / taken,
        "peer": "GPOMDP by hand in PyTorch",
        "version": f"torch {torch.__version__}, gymnasium {gymnasium.__version__}",
        "setting": f"categorical policy 4-64-2, tanh, no critic, {EPISODES} episodes of at most {HORIZON} steps a batch "
        f"(on average {steps / batches / EPISODES:.0f}), 1 update a batch, {type(envs.unwrapped).__name__}, "
        f"{torch.get_num_threads()} threads",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
