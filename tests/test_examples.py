"""The examples run. Commands and snippets of the documentation are in tests/printed."""

import runpy
import sys
from pathlib import Path

import pytest

from stormpg import algorithms

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.py")), ids=lambda f: f.name)
def test_example(file, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(file)])
    before = set(algorithms.ALGORITHMS)
    try:
        runpy.run_path(str(file), run_name="__main__")
    finally:
        for name in set(algorithms.ALGORITHMS) - before:
            del algorithms.ALGORITHMS[name]
    assert len(capsys.readouterr().out.splitlines()) >= 1
