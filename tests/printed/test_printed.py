"""Every command and snippet of README, CONTRIBUTING.md and docs/ runs as printed, with the budgets of `budgets.py`.

A page runs in a folder of its own, from the top to the bottom, so that a command finds what an earlier one has written.
"""

import re
import shutil
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

import markdown
import pytest

from stormpg import Environment, algorithms, testing
from stormpg.cli.help import ORDER
from stormpg.report import charts, figures
from stormpg.studies import equal_tuning
from tests.printed import exceptions
from tests.printed.budgets import cut_python, cut_words
from tests.printed.text import COMMANDS, FENCE, FILE, PAGES, PYTHON, ROOT, TEXT, Printed, printed, text_of, words

FORMS = re.compile(r"^(stormpg .*)$", re.MULTILINE)  # in a block of text: the forms of a command
# Studies that take long, with their usual folders: several tests share one, so the command finds it finished.
LONG = {("theory", "all"): "theory", ("compare", "--suite"): "comparison", ("reproduce",): "results"}
RUN = ("train", "cartpole", "--algorithm", "gpomdp")  # what RUN stands for

EVERYTHING = [one for page in PAGES for one in printed(page)]
ALL_COMMANDS = [one for one in EVERYTHING if one.kind == COMMANDS]


@pytest.fixture
def own_algorithms():
    """The algorithms that a page registers. They are forgotten afterwards."""
    before = set(algorithms.ALGORITHMS)
    yield lambda: set(algorithms.ALGORITHMS) - before
    for name in set(algorithms.ALGORITHMS) - before:
        del algorithms.ALGORITHMS[name]


@pytest.fixture
def quick(monkeypatch) -> None:
    """No figures, which other tests draw, and `compare --tune` with one shape of each algorithm: each has its own program."""
    for module in (figures, charts):
        monkeypatch.setattr(module, "save", lambda *_: None)
    every = equal_tuning.space_for

    def first(algorithm: str, points: int) -> equal_tuning.Space:
        shapes, floats = every(algorithm, points)
        return equal_tuning.Space(shapes[:1], floats)

    monkeypatch.setattr(equal_tuning, "space_for", first)


@pytest.fixture
def run_command(command, made_once, finished_study, quick) -> Callable[[Sequence[str]], None]:
    """Run a command of `stormpg`, cut, in the folder of the page."""

    def done(*given: str) -> None:
        code, _, err = command(*given)
        assert code == 0, err

    def run(given: Sequence[str]) -> None:
        cut = cut_words([exceptions.STANDS_FOR.get(word, word) for word in given])[1:]
        if "RUN" in cut and not Path("RUN").exists():
            shutil.copytree(
                made_once("run", lambda folder: done(*cut_words(["stormpg", *RUN])[1:], "--out", str(folder))), "RUN"
            )
        for kind, usual in LONG.items():
            if set(kind) <= set(cut):
                place = cut.index("--out") if "--out" in cut else len(cut)
                folder = Path(cut[place + 1] if "--out" in cut else usual)
                study = finished_study(*cut[:place], *cut[place + 2 :])
                shutil.copytree(study, folder, dirs_exist_ok=True)
        done(*cut)

    return run


def run_python(one: Printed, number: int, monkeypatch) -> None:
    """Run a snippet in a module of its own, in which dataclasses look up annotations. Check the environments that it makes."""
    name = f"printed_{number}"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    above = "\n" * (one.line - 1)  # so that a traceback names the line of the page
    exec(compile(cut_python(above + one.text), str(ROOT / one.page), "exec"), module.__dict__)
    for value in list(vars(module).values()):
        if isinstance(value, types.FunctionType) and value.__annotations__.get("return") is Environment:
            testing.check_environment(value())


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({one.page for one in EVERYTHING}))
def test_a_page(page, monkeypatch, tmp_path, run_command, own_algorithms):
    done = set()
    for number, one in enumerate(printed(page)):
        if one.kind == PYTHON:
            run_python(one, number, monkeypatch)
        elif one.kind == FILE:
            Path(one.name).write_text(one.text, encoding="utf-8")
            run_command(words(exceptions.USES[one.name]))
        elif one.kind == COMMANDS and exceptions.reason(one.plain) is None and one.plain not in done:
            assert words(one.text)[0] == "stormpg", f"{one}: cannot be run here; give the reason in exceptions.py"
            run_command(words(one.text))
            done.add(one.plain)
    for name in own_algorithms():
        testing.check_algorithm(algorithms.make_algorithm(name))


@pytest.mark.parametrize("one", [one for one in ALL_COMMANDS if exceptions.reason(one.plain)], ids=str)
def test_a_command_that_is_not_run(one):
    exceptions.check(words(one.text))


@pytest.mark.parametrize("form", [form for one in EVERYTHING if one.kind == TEXT for form in FORMS.findall(one.text)])
def test_the_forms_of_a_command(form):
    exceptions.check_flags(form.split("#")[0].split())


def test_every_exception_is_needed():
    for pattern in exceptions.NOT_RUN:
        assert any(re.fullmatch(pattern, one.plain) for one in ALL_COMMANDS), pattern
    run = [one for one in ALL_COMMANDS if exceptions.reason(one.plain) is None]
    for word in exceptions.STANDS_FOR:
        assert any(word in words(one.text) for one in run), word
    assert set(exceptions.USES) == {one.name for one in EVERYTHING if one.kind == FILE}


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_printed_without_a_fence(page):
    """An indented block has no language, so nobody knows what it is."""
    text = FENCE.sub("", text_of(page))
    assert "<pre>" not in markdown.markdown(text, extensions=["tables"]), "an indented block: put it between fences"


def test_most_of_it_runs():
    run = [one for one in ALL_COMMANDS if exceptions.reason(one.plain) is None]
    assert len(run) >= 80
    assert len([one for one in EVERYTHING if one.kind == PYTHON]) >= 15
    assert {words(one.text)[1] for one in run} >= set(ORDER)
