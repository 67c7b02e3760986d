"""How the budgets of printed commands, snippets and notebooks are cut, so that they run in seconds. Nothing else changes.

One table: by command or function, the largest value of each budget. A larger number becomes this one, and a budget that is not
given is added with it.
"""

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import stormpg

LIMITS: Mapping[str, Mapping[str, Any]] = {
    "train": {"trajectories": 60, "steps": 400, "seeds": 2, "horizon": 5},
    "learn": {"trajectories": 60, "steps": 400},
    "evaluate": {"episodes": 2},
    "compare": {"trajectories": 60, "seeds": 2, "horizon": 5},
    "compare --suite": {"trajectories": 30, "seeds": 2},
    "tune": {"trajectories": 60, "seeds": 2, "horizon": 5, "trials": 4, "generation": 4, "fresh_seeds": 2},
    "reproduce": {"seeds": 2, "trajectories": 100},
    "theory all": {"size": "small"},
    "theory advise": {"pilot": 20},
}
IN_PYTHON: Mapping[str, Mapping[str, Any]] = {"train": {"seeds": 8}}  # instead: a snippet may take one of the seeds
FUNCTIONS = {"train": stormpg.train, "learn": stormpg.Agent.learn, "evaluate": stormpg.Agent.evaluate}  # in Python
SUITE = ("lqr", "storm-pg,window-npg")  # of a suite the quickest task, and if none are given, two algorithms


def smaller(value: Any, limit: Any) -> Any:
    """A budget, cut: a number, a list of seeds, or a name."""
    if isinstance(limit, str):
        return limit
    return min(value, limit) if isinstance(value, int | float) else value[:limit]


def cut_words(words: Sequence[str]) -> list[str]:
    """A command of `stormpg` with smaller budgets."""
    words = list(words)
    if "--resume" in words:  # the run has its budget already
        return words
    name = " ".join(words[1:3]) if words[1] == "theory" else words[1]
    if "--suite" in words:
        name = "compare --suite"
        given = not words[2].startswith("--")
        words[2 : 3 if given else 2] = [SUITE[0]]
        words += [] if "--algorithms" in words else ["--algorithms", SUITE[1]]
    for budget, limit in LIMITS.get(name, {}).items():
        flag = f"--{budget.replace('_', '-')}"
        if flag not in words:
            words += [flag, str(limit)]
        else:
            place = words.index(flag) + 1
            words[place] = str(smaller(type(limit)(words[place]), limit))
    return words


def cut_python(source: str) -> ast.Module:
    """The code with smaller budgets. Line numbers stay."""
    return ast.fix_missing_locations(_Cut().visit(ast.parse(source)))


def cut_cell(source: str) -> str:
    """The code of a notebook's cell with smaller budgets. A semicolon at its end hides what it returns."""
    return ast.unparse(cut_python(source)) + ";" * source.rstrip().endswith(";")


class _Cut(ast.NodeTransformer):
    """Replace the budgets in the calls of the functions."""

    def visit_Call(self, call: ast.Call) -> ast.Call:
        self.generic_visit(call)
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name not in FUNCTIONS:
            return call
        limits = {**LIMITS[name], **IN_PYTHON.get(name, {})}
        own = [p for p in inspect.signature(FUNCTIONS[name]).parameters if p != "self"]
        for place, (value, budget) in enumerate(zip(call.args, own, strict=False)):
            if budget in limits:
                call.args[place] = cut_expression(value, limits[budget])
        for keyword in call.keywords:
            if keyword.arg in limits:
                keyword.value = cut_expression(keyword.value, limits[keyword.arg])
        given = {*own[: len(call.args)], *(keyword.arg for keyword in call.keywords)}
        call.keywords += [ast.keyword(b, ast.Constant(limit)) for b, limit in limits.items() if b not in given]
        return call


def cut_expression(value: ast.expr, limit: int) -> ast.expr:
    """The expression of a budget that is cut when it is evaluated. A notebook has only its own names, so it is inline."""
    cut = f"(lambda value: min(value, {limit}) if isinstance(value, (int, float)) else value[:{limit}])(0)"
    call = ast.parse(cut, mode="eval").body
    assert isinstance(call, ast.Call)
    call.args = [value]
    return call
