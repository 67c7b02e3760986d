"""Environment steps per second of a slow environment with 1, 2 and 4 Ray actors.

    python -m benchmarks.rollout_workers [STEPS]

Each step of the environment sleeps for 5 ms, like a simulator in another process: the actors wait and use no core. All sample
the same batches and take turns for three rounds. Each samples one batch before, so startup is not measured. STEPS is the number
of steps in a batch, 800 by default.
"""

import contextlib
import statistics
import sys
import time

import gymnasium
import jax
import numpy as np

import stormpg
from stormpg.envs import gym
from stormpg.machine.ray_cluster import cluster
from stormpg.sampling.ray_actors import RaySampler

WORKERS = (1, 2, 4)
EPISODES, ROUNDS, PAUSE, WANTED = 8, 3, 0.005, 1.8


class Slow(gymnasium.Env):
    """An environment whose steps take time but no CPU."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,))
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), {}

    def step(self, action):
        time.sleep(PAUSE)
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), float(action[0]), False, False, {}


def main() -> None:
    horizon = int(sys.argv[1] if len(sys.argv) > 1 else 800) // EPISODES
    speeds: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    with contextlib.ExitStack() as held:
        held.enter_context(cluster("ray"))  # before JAX starts threads, which would cause a warning
        env = gym.from_factory("slow", Slow)
        policy, key = stormpg.policy_for(env), jax.random.key(0)
        params = policy.init(key)
        samplers = {workers: held.enter_context(RaySampler(env, horizon, workers)) for workers in WORKERS}
        first = {workers: sampler.sample(policy, params, key, EPISODES) for workers, sampler in samplers.items()}
        for number in range(ROUNDS):
            for workers, sampler in samplers.items():
                began = time.perf_counter()
                batch = sampler.sample(policy, params, jax.random.fold_in(key, number), EPISODES)
                speeds[workers].append(float(np.sum(batch.mask)) / (time.perf_counter() - began))
    for batch in first.values():
        jax.tree.map(np.testing.assert_array_equal, batch, first[WORKERS[0]])
    medians = {workers: statistics.median(found) for workers, found in speeds.items()}
    for workers, found in speeds.items():
        spread, ratio = f"{min(found):,.0f} to {max(found):,.0f}", medians[workers] / medians[1]
        speed = f"{medians[workers]:>9,.0f} steps per second ({spread})"
        print(f"actors: {workers} {speed}, {ratio:.2f} times as fast as one actor", flush=True)
    if medians[2] / medians[1] < WANTED:
        sys.exit(f"two actors are less than {WANTED} times as fast as one.")


if __name__ == "__main__":
    main()
