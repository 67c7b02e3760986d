"""The command in a real terminal: progress bars are shown there only, so other tests do not see them."""

import contextlib
import os
import pty
import re
import subprocess
import sys

import pytest

from tests.conftest import killed_after


def in_terminal(*command: str) -> tuple[int, str]:
    """Run a command on a terminal of its own. Returns the exit code and all words it wrote, without line ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "100"})
    os.close(theirs)
    parts = []
    with killed_after(process):
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := os.read(ours, 65536):
                parts.append(part)
        code = process.wait()
    os.close(ours)
    return code, " ".join(b"".join(parts).decode().split())


@pytest.mark.slow
def test_a_run_shows_its_progress_and_its_result(tmp_path):
    run = str(tmp_path / "run")
    code, shown = in_terminal(
        sys.executable, "-m", "stormpg", "train", "chain", "--trajectories", "60", "--seeds", "2", "--out", run
    )
    assert code == 0, shown
    assert "window-npg on chain (compiling)" in shown
    assert re.search(r"60/60 trajectories return -?\d", shown)
    assert "worst and best seed" in shown


@pytest.mark.slow
def test_a_budget_of_steps_is_shown_in_steps():
    code = "import stormpg; stormpg.Agent('chain').learn(steps=2000, progress_bar=True)"
    code, shown = in_terminal(sys.executable, "-c", code)
    assert code == 0, shown
    assert re.search(r"[\d,]+/2,000 steps return -?\d", shown)
    assert "trajectories" not in shown
