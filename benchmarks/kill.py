"""Fifty runs killed with SIGKILL at random moments, resumed, and compared with the one that nobody killed.

python -m benchmarks.kill [RUNS]
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = ["train", "cartpole-continuous", "--trajectories", "3000", "--seeds", "2", "--horizon", "20", "--S0", "4", "--B", "2"]
OFTEN = ("--checkpoint-iterations", "1")
FILES = ("metrics.parquet", "policy.safetensors")


def stormpg(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "stormpg", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    runs, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 50, random.Random(0)
    with tempfile.TemporaryDirectory() as root:
        whole = Path(root) / "whole"
        began = time.monotonic()
        assert stormpg(*TRAIN, "--out", str(whole), *OFTEN).wait() == 0
        usual = time.monotonic() - began
        equal = unbegun = 0
        for number in range(runs):
            folder = Path(root) / str(number)
            process = stormpg(*TRAIN, "--out", str(folder), *OFTEN)
            time.sleep(rng.uniform(0.3, 1.0) * usual)
            process.kill()
            process.wait()
            if not (folder / "config.json").exists():  # killed before it took its folder: it is begun again
                unbegun += 1
                assert stormpg(*TRAIN, "--out", str(folder), *OFTEN).wait() == 0
            elif not (folder / "summary.json").exists():
                assert stormpg("train", "--resume", str(folder)).wait() == 0
            equal += all((folder / name).read_bytes() == (whole / name).read_bytes() for name in FILES)
        print(f"{equal} of {runs} equal the whole run byte for byte ({unbegun} were killed before they had begun)")
        sys.exit(equal != runs)


if __name__ == "__main__":
    main()
