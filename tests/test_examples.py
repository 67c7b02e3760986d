"""The examples and the code in the documentation run."""

import re
import runpy
import shlex
import sys
import types
from pathlib import Path

import pytest

import stormpg
from stormpg import algorithms

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("index", "start", "agent", "your-policy", "theory", "window-npg", "family")  # whose Python blocks run


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


def blocks(file: str, language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / file).read_text(), re.DOTALL | re.MULTILINE)
    found = [block for kind, block in fences if kind == language]
    assert found, f"{file} has no block of this kind"
    return found


def test_python_in_the_readme(monkeypatch, tmp_path):
    """The Python blocks run unchanged, with smaller budgets."""
    monkeypatch.chdir(tmp_path)
    learn = stormpg.Agent.learn
    few = lambda self, trajectories=20, **k: learn(self, min(trajectories, 20), **{**k, "steps": None})
    monkeypatch.setattr(stormpg.Agent, "learn", few)
    real = stormpg.train
    monkeypatch.setattr(stormpg, "train", lambda *a, **k: real(*a, **{**k, "trajectories": 20, "seeds": 8, "horizon": 5}))
    pages = ("README.md", *(f"docs/{name}.md" for name in PAGES))
    for block in [block for page in pages for block in blocks(page, "python")]:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_commands_of_a_page(monkeypatch, tmp_path, page):
    """Every `stormpg` line parses and runs, with smaller budgets."""
    from stormpg import cli

    monkeypatch.chdir(tmp_path)
    lines = [line.split("#")[0] for line in "".join(blocks(page, "")).splitlines() if line.startswith("stormpg ")]
    lines = [line for line in lines if not line.startswith("stormpg theory")]  # takes minutes: see tests/theory
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line)
        small = ["--trajectories", "30", "--seeds", "2", "--horizon", "5"] if words[1] in ("train", "compare", "tune") else []
        small += ["--trials", "4", "--generation", "4", "--fresh-seeds", "2"] if words[1] == "tune" else []
        monkeypatch.setattr(sys, "argv", words + small)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code


def test_the_readme_shows_the_verdicts_as_they_were_made():
    table = re.search(r"<!-- verdicts -->\n(.*?)<!-- end of verdicts -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert table is not None
    assert table[1].strip() in (ROOT / "docs" / "reproduction" / "tables.md").read_text()
    assert table[1].count("storm-pg") > 10


def test_contributing_skeletons_run(monkeypatch):
    """The code blocks of CONTRIBUTING.md run, each in its own module."""
    from stormpg import testing

    scopes = []
    for number, block in enumerate(blocks("CONTRIBUTING.md", "python")):
        name = f"contributing_{number}"
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))  # dataclasses look up annotations there
        scopes.append({"__name__": name})
        exec(compile(block, "CONTRIBUTING.md", "exec"), scopes[-1])
    everything = {name: value for scope in scopes for name, value in scope.items()}
    for name in ("heavy-ball-pg", "momentum-pg"):
        testing.check_algorithm(stormpg.make_algorithm(name))
        del algorithms.ALGORITHMS[name]
    testing.check_environment(everything["walk"]())
