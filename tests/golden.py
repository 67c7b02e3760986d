"""Reference results of all algorithms in float64, stored in a file: refactoring must not change them.

    python -m tests.golden        writes tests/data/golden.npz with the current code

Only public names are used, so that any version can write the file.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

import stormpg

FILE = Path(__file__).parent / "data" / "golden.npz"
ENVIRONMENTS = ("pendulum", "chain")
HORIZON, SEEDS = 10, 2
ROWS: dict[str, tuple[str, dict[str, Any], int]] = {  # the number of trajectories is that of ten iterations
    "reinforce": ("reinforce", {"S0": 4}, 40),
    "pgt": ("pgt", {"S0": 4}, 40),
    "gpomdp": ("gpomdp", {"S0": 4}, 40),
    "gpomdp, optimal baseline": ("gpomdp", {"S0": 4, "baseline": "optimal"}, 40),
    "svrpo": ("svrpo", {"S0": 6, "B": 3, "m": 4}, 12),
    "svrpg": ("svrpg", {"S0": 4, "B": 2, "m": 4}, 24),
    "svrpg of Papini": ("svrpg", {"S0": 4, "B": 3, "m": 4, "adaptive": True, "two_optimizers": True, "inner_rate": 0.8}, 40),
    "srvr-pg": ("srvr-pg", {"S0": 4, "B": 2, "m": 4}, 24),
    "storm-pg": ("storm-pg", {"S0": 4, "B": 2, "decay": 0.9, "decay_every": 3}, 22),
}


def numbers(env: str, row: str) -> dict[str, np.ndarray]:
    """Every column of the metrics, and the last, uniform and best parameters of every seed."""
    name, settings, trajectories = ROWS[row]
    with jax.enable_x64(True):
        made = stormpg.make(env)
        policy = stormpg.policy_for(made, **({} if env == "chain" else {"hidden": (8,)}))
        algorithm = stormpg.make_algorithm(name, **settings)
        result = stormpg.train(made, algorithm, trajectories, SEEDS, horizon=HORIZON, policy=policy)
        found = {key: np.asarray(x) for key, x in result.columns.items() if key not in ("env", "algorithm")}
        for which in ("last", "uniform", "best"):
            for seed in range(SEEDS):
                leaves = jax.tree.leaves(result.params(which, seed))
                found[f"{which} {seed}"] = np.concatenate([np.ravel(leaf) for leaf in leaves])
    return found


def trajectories(env: str) -> dict[str, np.ndarray]:
    """Every field of one sampled batch."""
    with jax.enable_x64(True):
        made = stormpg.make(env)
        policy = stormpg.policy_for(made, **({} if env == "chain" else {"hidden": (8,)}))
        batch = stormpg.rollout(made, policy, policy.init(jax.random.key(0)), jax.random.key(1), 3, HORIZON)
        return {field: np.asarray(x) for field, x in batch._asdict().items()}


if __name__ == "__main__":
    kept = {f"{env}/{row}/{key}": x for env in ENVIRONMENTS for row in ROWS for key, x in numbers(env, row).items()}
    kept |= {f"{env}/rollout/{key}": x for env in ENVIRONMENTS for key, x in trajectories(env).items()}
    np.savez_compressed(FILE, **kept)
