"""The limit: a C program for the same work (`limit.c`), verified against the library's gradients, and run beside it."""

import functools
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import stormpg
from stormpg.bench.measure import BenchTable, Row, Tell, in_turns
from stormpg.bench.speeds import Speed
from stormpg.envs import make
from stormpg.estimators import estimate
from stormpg.machine.blocks import cores
from stormpg.policies.constructors import policy_for
from stormpg.records import Tree
from stormpg.sampling.rollouts import noise_of, rollout

SOURCE = Path(__file__).with_name("limit.c")
HORIZON, GAMMA = 100, 0.99
FLAGS = ["-Ofast", "-march=native", "-funroll-loops"]
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")
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
    """Million steps a second of the C program, so many of it side by side."""
    command = [str(program), "run", "storm" if algorithm == "storm-pg" else "gpomdp", str(B), str(HORIZON), str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0].split()[0]) for process in running) / 1e6


def peak(program: Path) -> float:
    """The most multiplications and additions that one core does, in thousand million a second."""
    return float(subprocess.run([str(program), "peak"], check=True, capture_output=True, text=True).stdout)


def limit(folder: Path, rounds: int, tell: Tell) -> BenchTable:
    """STORM-PG and GPOMDP with many seeds on all cores and with one on one, beside C in as many processes."""
    title, unit = "Beside hand-written C, Cart-Pole", "million steps a second"
    program = build(folder)
    if program is None:
        return BenchTable("limit", title, unit, [Row("C", [], {"missing": "there is no gcc here"})])
    difference = compare(program, folder)
    cases = [(algorithm, B, seeds) for algorithm, B in (("storm-pg", 5), ("gpomdp", 10)) for seeds in (64, 1)]
    tasks: dict[str, Callable[[], float]] = {}
    for algorithm, B, seeds in cases:
        name, count = f"{algorithm}, B={B}, {seeds} seeds", cores() if seeds > 1 else 1
        tasks[f"{name}, C on {count}"] = functools.partial(in_c, program, algorithm, B, count)
        tasks[name] = Speed("cartpole-continuous", algorithm, B, seeds, HORIZON)
    figures = in_turns(tasks, rounds, tell)
    most, rows = peak(program), []
    for algorithm, B, seeds in cases:
        name, count = f"{algorithm}, B={B}, {seeds} seeds", cores() if seeds > 1 else 1
        c = Row(f"{name}, C on {count}", figures[f"{name}, C on {count}"])
        ours = Row(name, figures[name])
        work = OPERATIONS[algorithm] / 1e3 / count  # thousand million operations of a core for a million steps
        rows += [row._replace(about={"share of peak": row.median * work / most}) for row in (c, ours)]
        rows[-1].about["share of C"] = ours.median / c.median  # type: ignore[index]
    note = f"C's gradients differ from the library's by {difference:.1e} of their size. Peak of a core: {most:.0f} GFLOP/s."
    return BenchTable("limit", title, unit, rows, note)
