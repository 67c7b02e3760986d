"""Workers of a study that are processes."""

import signal
import threading
import time
from pathlib import Path

import pytest

from stormpg.studies import workers


def endures(started: Path) -> None:
    """Continue after SIGTERM, as a worker does that takes the next part."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started.touch()
    time.sleep(600)


@pytest.mark.slow
def test_a_process_that_continues_after_sigterm_is_killed(tmp_path):
    started = tmp_path / "started"
    pool = workers.processes(1, share=True)
    pool.submit(endures, started)
    (process,) = pool._processes.values()
    while not started.exists():
        assert process.is_alive()
        time.sleep(0.05)
    workers.stop(pool, grace=0.1)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.slow
def test_a_second_ctrl_c_kills_all_processes(tmp_path, monkeypatch):
    started = tmp_path / "started"
    pool = workers.processes(1, share=True)
    for _ in range(2):
        pool.submit(endures, started)
    (process,) = pool._processes.values()
    while not started.exists():
        assert process.is_alive()
        time.sleep(0.05)

    def interrupted(*seconds):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return type(process).join(process, *seconds)

    monkeypatch.setattr(process, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        workers.stop(pool)
    monkeypatch.undo()
    process.join(10)
    assert process.exitcode == -signal.SIGKILL
