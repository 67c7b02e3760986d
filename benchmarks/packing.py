"""Compare trials of one shape in one compiled batch with the same trials one after another.

    python benchmarks/packing.py

Both run the same settings with the same seeds in this process, with all programs compiled before the measurement. A last
measurement shows the time without packing: one command for each trial, with compiled programs cached on disk, for three trials.
"""

import subprocess
import sys
import tempfile
import time

import numpy as np

import stormpg
from stormpg.tune.objective import Objective
from stormpg.tune.packed_trials import packed, run_pack, trial
from stormpg.tune.plan import Problem

TRIALS, TRAJECTORIES, COMMANDS = 64, 500, 3


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def settings(count: int) -> list[dict]:
    random = np.random.default_rng(0)
    return [
        {"S0": 10, "B": 5, "eta": float(10 ** random.uniform(-3, -1.5)), "alpha": float(random.uniform(0.1, 1))}
        for _ in range(count)
    ]


def main() -> None:
    trials = settings(TRIALS)
    for seeds in (16, 4, 1):
        problem = Problem("cartpole-continuous", "storm-pg", TRAJECTORIES, tuple(range(seeds)), None, Objective())
        packs = [[trials[i] for i in pack] for pack in packed(problem, trials)]  # as in a search
        in_packs = lambda problem=problem, packs=packs: [run_pack(problem, pack, None, None, []) for pack in packs]
        pairs = [trial(problem, one) for one in trials]

        def alone(pairs=pairs, problem=problem):
            for algorithm, policy in pairs:
                stormpg.train(problem.env, algorithm, problem.trajectories, list(problem.seeds), policy=policy)

        in_packs()
        alone(pairs[:1])
        together, apart = seconds(in_packs), seconds(alone)
        print(f"{TRIALS} trials of {seeds} seeds: packed {together:.1f} s, one after another {apart:.1f} s, "
              f"{apart / together:.1f} times as fast", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "stormpg", "train", "cartpole-continuous", "--algorithm", "storm-pg"]
        flags = lambda i: [f"--{name}={value}" for name, value in trials[i].items()]
        one = lambda i: [*command, "--trajectories", str(TRAJECTORIES), "--seeds", "16", *flags(i), "--out", f"{folder}/{i}"]
        subprocess.run(one(0), check=True, capture_output=True)
        several = seconds(lambda: [subprocess.run(one(i + 1), check=True, capture_output=True) for i in range(COMMANDS)])
    each = several / COMMANDS
    print(f"one command for each trial of 16 seeds: {each:.1f} s each, {TRIALS * each:.0f} s for {TRIALS}")


if __name__ == "__main__":
    main()
