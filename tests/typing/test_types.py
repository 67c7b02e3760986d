"""A user's type checker accepts the public names, and knows what they return."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).with_name("user_code.py")
pytestmark = pytest.mark.slow


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False, timeout=600)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy with the settings of a user. What it finds out about the libraries is kept for the next file."""
    cache = tmp_path_factory.mktemp("cache")
    return lambda file: run("mypy", "--strict", "--config-file", "", "--cache-dir", str(cache), str(file))


def test_mypy_accepts_user_code(mypy):
    assert mypy(CODE) == ""


def test_a_mistake_is_found(mypy, tmp_path):
    """The types say something: a wrong argument and a wrong attribute are errors."""
    wrong = tmp_path / "wrong.py"
    mistakes = ('stormpg.storm_pg(eta="fast")', 'stormpg.train("chain").colums', "stormpg.storm_pg(etta=0.1)")
    wrong.write_text("\n".join(("import stormpg", *mistakes, "")))
    found = mypy(wrong)
    assert found.count("error:") == len(mistakes)


def test_pyright_accepts_user_code():
    pytest.importorskip("pyright")
    found = run("pyright", "--pythonpath", sys.executable, str(CODE))
    if "Could not" in found or "getaddrinfo" in found or "ENOTFOUND" in found:
        pytest.skip("Pyright cannot be downloaded here")
    assert found == ""
