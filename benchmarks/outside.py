"""Environment steps per second on Gymnasium's environments, compared with A2C and PPO of Stable-Baselines3.

    make peers                                # installs Stable-Baselines3 in a separate environment, .peers
    python -m benchmarks.outside [STEPS]

All use the same number of environments (10, in one process) and the same network (one hidden layer of 64 tanh units). The three
take turns for three rounds. Only the training time is measured, after a warm-up for each.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

ENVS = ("CartPole-v1", "HalfCheetah-v5")
COUNT, ROUNDS = 10, 3

OURS = """
import json, sys, time, stormpg
name, steps = sys.argv[1], int(sys.argv[2])
algorithm = stormpg.storm_pg(S0={count}, B={count})
def train(trajectories):
    return stormpg.train("gym:" + name, algorithm, trajectories, seeds=1)
trajectories = {count} * max(2, steps // (1000 if "Cheetah" in name else 150) // {count})
train(2 * {count})
began = time.perf_counter()
result = train(trajectories)
print(json.dumps(int(result.columns["steps"][-1]) / (time.perf_counter() - began)))
"""

THEIRS = """
import json, sys, time, torch, stable_baselines3 as sb3
from stable_baselines3.common.env_util import make_vec_env
name, steps, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = getattr(sb3, kind)("MlpPolicy", make_vec_env(name, {count}), policy_kwargs=dict(net_arch=[64]), device="cpu")
model.learn({count} * 200)
began = time.perf_counter()
model.learn(steps, reset_num_timesteps=False)
print(json.dumps((model.num_timesteps - {count} * 200) / (time.perf_counter() - began)))
"""


def measure(python: str, program: str, *arguments: str) -> float:
    done = subprocess.run([python, "-c", program.format(count=COUNT), *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    steps = sys.argv[1] if len(sys.argv) > 1 else "60000"
    peers = Path(".peers/bin/python")
    rows = {"stormpg STORM-PG": (sys.executable, OURS, ())}
    if peers.exists():
        rows |= {f"Stable-Baselines3 {kind}": (str(peers), THEIRS, (kind,)) for kind in ("A2C", "PPO")}
    else:
        print("Stable-Baselines3 is not installed: run `make peers` to install it.")
    for env in ENVS:
        speeds: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(ROUNDS):
            for name, (python, program, more) in rows.items():
                speeds[name].append(measure(python, program, env, steps, *more))
        for name, found in speeds.items():
            spread = f"{min(found):,.0f} to {max(found):,.0f}"
            print(f"{env:16} {name:22} {statistics.median(found):>9,.0f} steps per second ({spread})", flush=True)


if __name__ == "__main__":
    main()
