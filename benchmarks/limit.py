"""The limit: a C program for the same work (limit.c), verified against the library's gradients, and how far off we are.

    python -m benchmarks.limit [SECONDS]

Training steps a second, one core and two (two processes side by side), for both; ratios of one run can be compared.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import stormpg
from stormpg.envs import make
from stormpg.estimators import estimate
from stormpg.policies import policy_for
from stormpg.records import Tree
from stormpg.trajectories import noise_of, rollout

SOURCE = Path(__file__).with_name("limit.c")
HORIZON, GAMMA = 100, 0.99
FLAGS = ("-Ofast", "-march=native", "-funroll-loops", "-mprefer-vector-width=512")
# Floating-point operations of a step: forward 64 · (8 + tanh as 12 + 2), backward 64 · 14, Cart-Pole about 60.
FORWARD, BACKWARD, PHYSICS = 64 * 22, 64 * 14, 60
OPERATIONS = {"gpomdp": FORWARD + BACKWARD + PHYSICS, "storm-pg": 2 * (FORWARD + BACKWARD) + PHYSICS}


def build(folder: Path) -> Path | None:
    """The compiled program; None where there is no compiler."""
    if shutil.which("gcc") is None:
        return None
    program = folder / "limit"
    subprocess.run(["gcc", *FLAGS, "-o", str(program), str(SOURCE), "-lm"], check=True)
    return program


def as_bytes(params: Tree) -> bytes:
    first, last = params["mean"]
    parts = (first["weight"], first["bias"], last["weight"], last["bias"])
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float32).tobytes()


def compare(program: Path, folder: Path, B: int = 5) -> float:
    """The largest difference of either gradient of one batch, over the gradient's size: C's against the library's."""
    env = make("cartpole-continuous")
    policy, key = policy_for(env), jax.random.key(3)
    params = policy.init(jax.random.key(1))
    other = jax.tree.map(lambda x: x + 0.003, params)
    batch = rollout(env, policy, params, key, B, HORIZON)
    estimator = stormpg.gpomdp(GAMMA)
    here = estimate(estimator, policy, params, batch)
    there = estimate(estimator, policy, other, batch, here.baseline)

    keys = jax.random.split(key, (B, 3))
    starts = jax.vmap(env.reset)(keys[:, 0])[1]
    noise = noise_of(policy, keys[:, 1], HORIZON)[..., 0]
    file = folder / "batch"
    head = np.asarray([B, HORIZON, GAMMA], np.float32).tobytes()
    file.write_bytes(head + as_bytes(params) + as_bytes(other) + np.asarray(starts).tobytes() + np.asarray(noise).tobytes())
    found = subprocess.run([str(program), "check", str(file)], check=True, capture_output=True).stdout
    theirs = np.frombuffer(found, np.float32).reshape(2, -1)
    ours = np.stack([np.frombuffer(as_bytes(x.gradient), np.float32) for x in (here, there)])
    return float((np.abs(theirs - ours).max(axis=1) / np.abs(ours).max(axis=1)).max())


def limit(program: Path, algorithm: str, B: int, seconds: float, processes: int) -> float:
    """Steps a second of the C program, so many of it side by side."""
    kind = "storm" if algorithm == "storm-pg" else "gpomdp"
    command = [str(program), "run", kind, str(B), str(HORIZON), str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0].split()[0]) for process in running)


def ours(algorithm: str, B: int, seeds: int, trajectories: int) -> float:
    """Steps a second of the library, everything after compilation included."""
    settings = {"S0": B} if algorithm == "gpomdp" else {"S0": B, "B": B}
    made = stormpg.make_algorithm(algorithm, **settings)
    began = time.perf_counter()
    stormpg.train("cartpole-continuous", made, trajectories, seeds, horizon=HORIZON)
    return HORIZON * seeds * trajectories / (time.perf_counter() - began)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        if program is None:
            print("there is no gcc here: no limit to compare with.")
            return
        print(f"C's gradients differ from the library's by {compare(program, Path(name)):.1e} of their size\n")
        print(f"{'':34} {'C':>10} {'stormpg':>10}   ratio   million steps a second, medians of 5")
        for algorithm, B, seeds, processes in (
            ("storm-pg", 5, 64, 2),
            ("storm-pg", 5, 1, 1),
            ("gpomdp", 10, 64, 2),
            ("gpomdp", 10, 1, 1),
        ):
            trajectories = 1000 if seeds > 1 else 10_000
            ours(algorithm, B, seeds, trajectories)
            rounds = [
                (limit(program, algorithm, B, seconds, processes), ours(algorithm, B, seeds, trajectories)) for _ in range(5)
            ]
            c, mine = (statistics.median(found) / 1e6 for found in zip(*rounds, strict=True))
            label = f"{algorithm}, B={B}, {seeds} seeds, {processes} cores"
            work = OPERATIONS[algorithm] * c / 1e3 / processes
            print(f"{label:34} {c:10.2f} {mine:10.2f} {mine / c:7.2f}   C: {work:.1f} GFLOP/s a core", flush=True)


if __name__ == "__main__":
    main()
