"""Comparison with a C program that does the same work (`limit.c`). Its gradients are checked against the library's first."""

import functools
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import stormpg
from stormpg.bench.measure import BenchTable, Row, Tell, in_turns, of_seeds, ratio
from stormpg.bench.speeds import Speed
from stormpg.envs import make
from stormpg.estimators import estimate
from stormpg.machine.blocks import cores
from stormpg.policies.constructors import policy_for
from stormpg.pytrees import Tree
from stormpg.sampling.rollouts import noise_of, rollout

SOURCE = Path(__file__).with_name("limit.c")
HORIZON, GAMMA = 100, 0.99
FLAGS = ["-Ofast", "-march=native", "-funroll-loops"]
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")
# Floating-point operations per step: forward 64 · (8 + 12 for tanh + 2), backward 64 · 14, Cart-Pole about 60.
FORWARD, BACKWARD, PHYSICS = 64 * 22, 64 * 14, 60
OPERATIONS = {"gpomdp": FORWARD + BACKWARD + PHYSICS, "storm-pg": 2 * (FORWARD + BACKWARD) + PHYSICS}


def build(folder: Path) -> Path | None:
    """The compiled program; None if there is no compiler."""
    if shutil.which("gcc") is None:
        return None
    program = folder / "limit"
    subprocess.run(["gcc", *FLAGS, "-o", str(program), str(SOURCE), "-lm"], check=True)
    return program


def as_bytes(params: Tree) -> bytes:
    """The parameters in the order in which the C program reads them."""
    first, last = params["mean"]
    parts = (first["weight"], first["bias"], last["weight"], last["bias"])
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float32).tobytes()


def compare(program: Path, folder: Path, B: int = 5) -> float:
    """The largest difference between C's and the library's two gradients of one batch, relative to the largest entry."""
    env = make("cartpole-continuous")
    policy, key = policy_for(env), jax.random.key(3)
    params = policy.init(jax.random.key(1))
    other = jax.tree.map(lambda x: x + 0.003, params)
    batch = rollout(env, policy, params, key, B, HORIZON)
    estimator = stormpg.estimators.gpomdp(GAMMA)
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


def in_c(program: Path, algorithm: str, B: int, processes: int, seconds: float = 0.5) -> float:
    """Million steps per second of the C program, summed over this number of parallel processes."""
    command = [str(program), "run", "storm" if algorithm == "storm-pg" else "gpomdp", str(B), str(HORIZON), str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0].split()[0]) for process in running) / 1e6


def peak(program: Path) -> float:
    """The peak multiplications and additions of one core, in GFLOP/s."""
    return float(subprocess.run([str(program), "peak"], check=True, capture_output=True, text=True).stdout)


def limit(folder: Path, rounds: int, tell: Tell) -> BenchTable:
    """STORM-PG and GPOMDP with many seeds on all cores and with one seed on one core, and C in as many processes."""
    title, unit = "Compared with hand-written C, Cart-Pole", "million steps a second"
    program = build(folder)
    if program is None:
        return BenchTable("limit", title, unit, [Row("C", [], {"missing": "there is no gcc here"})])
    difference = compare(program, folder)
    cases = [(algorithm, B, seeds) for algorithm, B in (("storm-pg", 5), ("gpomdp", 10)) for seeds in (64, 1)]
    tasks: dict[str, Callable[[], float]] = {}
    for algorithm, B, seeds in cases:
        name, count = f"{algorithm}, B={B}, {of_seeds(seeds)}", cores() if seeds > 1 else 1
        tasks[f"{name}, C on {count}"] = functools.partial(in_c, program, algorithm, B, count)
        tasks[name] = Speed("cartpole-continuous", algorithm, B, seeds, HORIZON)
    figures = in_turns(tasks, rounds, tell)
    most, rows = peak(program), []
    for algorithm, B, seeds in cases:
        name, count = f"{algorithm}, B={B}, {of_seeds(seeds)}", cores() if seeds > 1 else 1
        c = Row(f"{name}, C on {count}", figures[f"{name}, C on {count}"])
        ours = Row(name, figures[name])
        work = OPERATIONS[algorithm] / 1e3 / count  # GFLOP per core for a million steps
        shares = [{"share of peak": row.median * work / most} for row in (c, ours)]
        shares[1]["share of C"] = ratio(ours.values, c.values)
        rows += [row._replace(about=share) for row, share in zip((c, ours), shares, strict=True)]
    note = f"Relative difference of C's gradients from the library's: {difference:.1e}. Peak of one core: {most:.0f} GFLOP/s."
    return BenchTable("limit", title, unit, rows, note)
