"""How printed commands and snippets are found, and how their budgets are cut."""

import ast

import pytest

from tests.printed import exceptions
from tests.printed.budgets import cut_cell, cut_python, cut_words
from tests.printed.text import printed

PAGE = """\
# Title

Run `stormpg train ENV
--seeds 2`, not `stormpg list | train` or `other thing`.

```
stormpg list   # a comment
python -m venv .venv && . .venv/bin/activate
stormpg train \\
  chain
```

- In a list:

  ```python
  x = 1
  ```

```toml title="some.toml"
eta = 1
```

```text
stormpg in text `stormpg report x`
```
"""


def test_everything_on_a_page_is_found_in_order():
    found = [(one.line, one.kind, one.text, one.name) for one in printed("page", PAGE)]
    assert found == [
        (3, "command", "stormpg train ENV --seeds 2", ""),
        (4, "text", "stormpg list | train", ""),
        (7, "command", "stormpg list   # a comment", ""),
        (8, "command", "python -m venv .venv", ""),
        (8, "command", ". .venv/bin/activate", ""),
        (9, "command", "stormpg train     chain", ""),
        (16, "python", "x = 1\n", ""),
        (20, "file", "eta = 1\n", "some.toml"),
        (24, "text", "stormpg in text `stormpg report x`\n", ""),
    ]


def test_a_language_that_nobody_knows_is_an_error():
    with pytest.raises(AssertionError, match="page:1: a block in 'yaml'"):
        printed("page", "```yaml\na: 1\n```\n")


@pytest.mark.parametrize(
    ("command", "cut"),
    [
        ("stormpg train chain --seeds 30 --steps 9", "train chain --seeds 2 --steps 9 --trajectories 60 --horizon 5"),
        ("stormpg train --resume runs/a", "train --resume runs/a"),
        ("stormpg evaluate a --episodes 20", "evaluate a --episodes 2"),
        ("stormpg list", "list"),
        ("stormpg theory all --out a", "theory all --out a --size small"),
        (
            "stormpg compare --suite family",
            "compare lqr --suite family --algorithms storm-pg,window-npg --trajectories 30 --seeds 2",
        ),
        (
            "stormpg compare acrobot,lqr --suite family --algorithms a,b",
            "compare lqr --suite family --algorithms a,b --trajectories 30 --seeds 2",
        ),
    ],
)
def test_commands_are_cut(command, cut):
    assert cut_words(command.split())[1:] == cut.split()


def budgets(source: str) -> dict:
    """The arguments of the only call, evaluated."""
    (call,) = [node for node in ast.walk(ast.parse(source)) if getattr(getattr(node, "func", None), "attr", "") == "train"]
    return {k.arg: eval(ast.unparse(k.value)) for k in call.keywords} | {
        i: eval(ast.unparse(value)) for i, value in enumerate(call.args) if i > 1
    }


def test_snippets_are_cut_wherever_the_budget_is_given():
    cut = cut_cell("stormpg.train('chain', 'pgt', 500, seeds=range(100, 130), eta=0.3)")
    assert budgets(cut) == {2: 60, "seeds": range(100, 108), "eta": 0.3, "steps": 400, "horizon": 5}
    assert budgets(cut_cell("stormpg.train('chain', 'pgt', trajectories=7, seeds=2)")) == {
        **{"trajectories": 7, "seeds": 2},
        **{"steps": 400, "horizon": 5},
    }


def test_nothing_else_changes():
    source = "f(trajectories=500)\nx.steps = 900\nprint(trajectories, 500)"
    assert ast.dump(cut_python(source)) == ast.dump(ast.parse(source))
    assert cut_cell("f(1);") == "f(1);"


@pytest.mark.parametrize(
    "wrong",
    [
        "stormpg nothing",
        "stormpg train chain --tragectories 5",
        "stormpg train chain [--nothing N]",
        "stormpg compare chain --algorithms storm-pg,nothing",
        "make nothing",
        'pip install ".[nothing]"',
        "python -m benchmarks.nothing",
        "python benchmarks/nothing.py",
    ],
)
def test_a_command_that_is_not_run_is_checked(wrong):
    with pytest.raises(AssertionError):
        exceptions.check([word.strip('"') for word in wrong.split()])
