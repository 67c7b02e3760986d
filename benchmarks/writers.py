"""Start fifty pairs of writers on the same folder. Each time one wins, the other gets a one-line error, and no files are mixed.

python -m benchmarks.writers [PAIRS]
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars

WAITING = "import sys, stormpg.cli; sys.stdin.readline(); sys.argv[0] = 'stormpg'; stormpg.cli.main()"
SIZES = ("--trajectories", "40", "--seeds", "2", "--horizon", "5")
ETAS = (0.01, 0.02)


def writer(folder: Path, eta: float, study: bool) -> subprocess.Popen:
    """Start a process that imports everything and then waits for a line on stdin."""
    if study:
        words = (
            "compare",
            "cartpole-continuous",
            "--algorithms",
            "storm-pg",
            *SIZES,
            "--decay",
            str(1 - eta),
            "--out",
            str(folder),
        )
    else:
        words = ("train", "cartpole-continuous", "--algorithm", "storm-pg", *SIZES, "--eta", str(eta), "--out", str(folder))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", WAITING, *words], text=True, **pipes)


def main() -> None:
    pairs, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 50, random.Random(0)
    mixed = 0
    with tempfile.TemporaryDirectory() as root:
        lone = {eta: Path(root) / f"lone-{eta}" for eta in ETAS}
        for eta, folder in lone.items():
            writer(folder, eta, False).communicate("\n")
        for number in range(pairs):
            study = number % 5 == 4
            folder = Path(root) / str(number)
            both = [writer(folder, eta, study) for eta in ETAS]
            time.sleep(3)  # wait for their imports
            for one in both:
                one.stdin.write("\n")
                one.stdin.flush()
                time.sleep(rng.choice((0, 0, 0.01, 0.1, 0.5)))
            said = [one.communicate()[1] for one in both]
            codes = [one.returncode for one in both]
            winner = codes.index(0) if 0 in codes else 0
            good = sorted(codes) == [0, 2] and said[1 - winner].count("\n") == 1
            if good and not study:
                config = json.loads((folder / "config.json").read_text())
                table, expected = (polars.read_parquet(f / "metrics.parquet") for f in (folder, lone[ETAS[winner]]))
                good = config["settings"][0]["eta"] == ETAS[winner] and table.equals(expected)
            mixed += not good
            if not good:
                print(codes, said)
    print(f"{pairs - mixed} of {pairs} pairs: one writer won, the other got a one-line error, no files were mixed")
    sys.exit(mixed > 0)


if __name__ == "__main__":
    main()
