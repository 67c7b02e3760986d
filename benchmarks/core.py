"""What a person waits for, printed: steps a second after compilation, memory, and the whole command cold and warm.

    python -m benchmarks.core            (or: make bench)

These are figures, not tests: they depend on the machine. Ratios within one run can be compared, seconds of different runs
cannot.
"""

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import jax

import stormpg
from stormpg.parallel import cores

HORIZON = 100


def throughput(algorithm: str, seeds: int, trajectories: int, repeats: int = 5) -> list[float]:
    """Environment steps of training a second, everything after compilation included, for each repeat."""

    def once() -> float:
        began = time.perf_counter()
        result = stormpg.train("cartpole-continuous", algorithm, trajectories, seeds, horizon=HORIZON)
        return HORIZON * seeds * int(result.columns["trajectories"].max()) / (time.perf_counter() - began)

    once()
    return [once() for _ in range(repeats)]


def command(cache: str, *arguments: str) -> tuple[float, float]:
    """Seconds and peak megabytes of a whole command in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"XDG_CACHE_HOME": cache}
    measure = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024); sys.exit(code)"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", measure, sys.executable, "-m", "stormpg", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return time.perf_counter() - began, float(done.stdout)


def main() -> None:
    device = f"{jax.default_backend()}, {cores()} cores, {platform.machine()}"
    print(f"jax {jax.__version__}, Python {platform.python_version()}, {device}\n")
    print(f"{'training, after compilation':44} {'M steps/s':>10}   spread")
    for algorithm, seeds, trajectories in (
        ("storm-pg", 1, 1000),
        ("storm-pg", 30, 500),
        ("storm-pg", 256, 500),
        ("gpomdp", 30, 1000),
        ("svrpg", 30, 1000),
        ("srvr-pg", 30, 1000),
    ):
        rates = [rate / 1e6 for rate in throughput(algorithm, seeds, trajectories)]
        label = f"{algorithm}, {seeds} seeds, {trajectories} trajectories"
        print(f"{label:44} {statistics.median(rates):10.2f}   {min(rates):.2f} to {max(rates):.2f}", flush=True)
    print(f"{'peak memory of all of the above':44} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:10.0f} MB\n")

    train = ("train", "cartpole-continuous", "--algorithm", "storm-pg")
    with tempfile.TemporaryDirectory() as cache:
        for label, arguments in (
            ("one seed, 1000 trajectories, cold", (*train, "--trajectories", "1000", "--seeds", "1")),
            ("the same, compilation cache warm", (*train, "--trajectories", "1000", "--seeds", "1")),
            ("30 seeds, 500 trajectories, cold", (*train, "--trajectories", "500", "--seeds", "30")),
            ("the same, compilation cache warm", (*train, "--trajectories", "500", "--seeds", "30")),
        ):
            seconds, megabytes = command(cache, *arguments)
            print(f"{'whole command: ' + label:52} {seconds:6.2f} s {megabytes:8.0f} MB", flush=True)


if __name__ == "__main__":
    main()
