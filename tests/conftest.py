"""Fixtures and settings shared by all tests."""

import contextlib
import functools
import gc
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

# Tests compile a lot and run little: with minimal optimisation they are three times faster. Set before JAX is imported.
# XLA aborts a process with an unknown flag, so the flags are first tried in a subprocess. Workers and commands inherit them.
if "XLA_FLAGS" not in os.environ:
    known = "--xla_backend_optimization_level=0"
    newer = f"{known} --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    # XLA's default. If it is set, the command does not set its own value, which takes longer to compile.
    newer += " --xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1024"
    ask = [sys.executable, "-c", "import jax; jax.devices()"]
    answer = subprocess.run(ask, env={**os.environ, "XLA_FLAGS": newer}, capture_output=True, check=False)
    os.environ["XLA_FLAGS"] = newer if answer.returncode == 0 else known
# All tests, workers and commands share a cache of compiled programs, including single operations; `make clean` removes it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "programs"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Workers, commands, Ray's processes and notebooks share compiled modules too. Without them each takes a second longer to start:
# packages are installed without them, and some machines forbid Python to write them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "modules"))
# By default, Ray's processes run with low priority: tests that wait for them would be slowed down by all other tests.
os.environ.setdefault("RAY_worker_niceness", "0")

import jax
import pytest
from filelock import FileLock

from stormpg.family import cells
from stormpg.machine import xla
from stormpg.studies import work_units, workers, workspace
from stormpg.tune import search
from tests import small

SHARED = Path(__file__).resolve().parents[2] / "shared" / "reference"


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A folder that is expensive to make, shared by all workers. The first test that needs it makes it; it is read-only."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder = root / f"shared-{name}"
        with FileLock(root / f"{name}.lock"):
            if not folder.exists():
                part = root / f"part-{name}"
                part.mkdir()
                make(part)
                part.rename(folder)
        return folder

    return folder_of


# What is imported stays. Python would look through it for garbage again and again, while JAX traces programs.
gc.freeze()
gc.set_threshold(50_000, 20, 20)

TESTS = itertools.count(1)  # that this process has run


@pytest.fixture(autouse=True)
def few_programs() -> Iterator[None]:
    """Drop compiled programs before their memory mappings reach the limit of Linux, 65,530: XLA then ends the process."""
    yield
    maps = Path("/proc/self/maps")
    if next(TESTS) % 4 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
        gc.collect()


# JAX makes an MLIR context for every program and keeps it: a third of the time of a small one, and gigabytes after a thousand.
# Here all programs share one, which threads may use at the same time. Without this internal function, tests take longer.
with contextlib.suppress(ImportError, AttributeError):
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)

# Tests with the same shapes share programs, which are small here.
xla.KEPT = 16

# Studies drop their compiled programs after each group of parts. All tests share them, to avoid tracing them again.
DROPPERS = [
    (module, name, getattr(module, name))
    for module in (work_units, workspace, workers, cells, search)
    for name in ("drop_programs", "give_memory_back")
    if hasattr(module, name)
]
for module, name, _ in DROPPERS:
    setattr(module, name, lambda: None)


@pytest.fixture
def programs_are_dropped(monkeypatch) -> None:
    """For a test of the memory that a study takes."""
    for module, name, function in DROPPERS:
        monkeypatch.setattr(module, name, function)


@contextlib.contextmanager
def killed_after(process: subprocess.Popen, seconds: float = 240) -> Iterator[None]:
    """Kill the process when the block ends, or after `seconds` if that is earlier."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()
        process.wait()


@pytest.fixture
def float64() -> Iterator[None]:
    """Enable float64 for the test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def recorded() -> Path:
    """The folder with recordings of the real rllab environments, which are not part of the project."""
    if not SHARED.is_dir():
        pytest.skip("the recordings of rllab's environments are not on this machine")
    return SHARED


@pytest.fixture
def command(capsys, monkeypatch, tmp_path) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process, in an empty folder. Returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        from stormpg import cli

        monkeypatch.setattr(sys, "argv", ["stormpg", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def finished_study(command, made_once, monkeypatch) -> Callable[..., Path]:
    """The folder of a study in small, made by the first test that needs it. The same command in a copy of it resumes it."""
    for shrink in (small.paper, small.laboratory, small.family):
        shrink(monkeypatch)

    def folder_of(*words: str) -> Path:
        def make(folder: Path) -> None:
            code, _, err = command(*words, "--out", str(folder / "study"))
            assert code == 0, err

        return made_once(re.sub(r"\W+", "-", " ".join(words)), make) / "study"

    return folder_of


LONGEST = ("test_reproduce_in_small", "test_the_whole_laboratory_in_small", "test_a_search_over_two_nodes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that the workers finish at about the same time."""
    items.sort(key=lambda item: not item.name.startswith(LONGEST))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless browser that makes no network requests by itself."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("chromium and chromedriver are not on this machine: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("profile")
    quiet = "first-run background-networking component-update sync"
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        f"--user-data-dir={profile}",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    for name in quiet.split():
        options.add_argument(f"--{'no' if name == 'first-run' else 'disable'}-{name}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield opened
    opened.quit()
