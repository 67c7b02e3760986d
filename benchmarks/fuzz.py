"""Ten thousand broken configuration and saved files: no traceback, no hang, no file outside the folder.

python -m benchmarks.fuzz [CASES]
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests" / "test_hostile.py"
KINDS = 5  # tests with random content


def main() -> None:
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    command = [sys.executable, "-m", "pytest", "-q", "-k", "anything or any_", "--hypothesis-show-statistics", str(TESTS)]
    sys.exit(subprocess.run(command, env=os.environ | {"STORMPG_FUZZ_CASES": str(-(-cases // KINDS))}).returncode)


if __name__ == "__main__":
    main()
