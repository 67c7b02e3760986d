"""The printed commands that are not run, each with its reason, and what stands for the words in capitals in the others.

A command that is not run is still checked: its flags, its target in the Makefile, its extras, its module.
"""

import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Mapping, Sequence

import typer

from stormpg.algorithms import ALGORITHMS
from stormpg.cli.base import app
from tests.printed.text import ROOT

INSTALLS = "installs packages, which needs a network"
ENVIRONMENT = "makes environments of its own in the repository; this is what runs the tests"
MEASURES = "measures for minutes to hours; what it does is tested in small in tests/bench"
MENTION = "names a command or a flag, without its arguments"
ELSEWHERE = "needs other machines"

NOT_RUN: Mapping[str, str] = {  # patterns of whole commands
    r"(JOBS=\d+ )?make .*": ENVIRONMENT,
    r"pip install .*": INSTALLS,
    r"python3 -m venv \.venv": INSTALLS,
    r"\. \.venv/bin/activate": "changes the shell it is typed into",
    r"ray start.*": ELSEWHERE,
    r"ssh -L .*": ELSEWHERE,
    r"stormpg .* --workers ray://.*": ELSEWHERE,
    r"stormpg bench( --against OLD\.json| --tables .*)?": MEASURES,
    r"python (-m benchmarks\.|benchmarks/).*": "measures or breaks things for minutes",
    r"python -m docs\.write( .*)?": "writes into the repository; tests/test_written_pages.py compares what it would write",
    r"python -m docs\.run_notebooks": "writes into the repository; test_notebooks.py runs them",
    r"stormpg --install-completion": "changes the settings of a shell",
    r"stormpg reproduce --full": "takes a minute, even in small; tests/cli/test_cli.py runs it",
    r"stormpg (render|report|tune|train --out|train --config|compare --tune)": MENTION,
    r"stormpg tune .* --workers ray": "starts a Ray cluster; tests/studies/test_ray_workers.py runs it",
    r"stormpg train .* --rollout-workers 8": "starts a Ray cluster; tests/sampling/test_ray_actors.py runs it",
    r"stormpg compare cartpole --suite family --algorithms storm-pg,window-npg,.*": (
        "differs in one name from that of docs/algorithms/storm-pg.md; each takes ten seconds, even in small"
    ),
}

RESULTS = sorted(str(file) for file in (ROOT / "benchmarks/results").glob("*-epyc-2.json"))

STANDS_FOR: Mapping[str, str] = {  # RUN is a finished run of the page's folder
    "ENV": "cartpole-continuous",
    "NAME": "gpomdp",
    "N": "2",
    "S": "1",
    "OLD.json": RESULTS[0],
    "NEW.json": RESULTS[-1],
}

USES: Mapping[str, str] = {  # how a printed file is used: with the commands that the page names in the text
    "defaults.toml": "stormpg train --config defaults.toml",
    "space.toml": "stormpg tune cartpole-continuous --algorithm storm-pg --space space.toml --out spaced",
}


def reason(command: str) -> str | None:
    """Why a command is not run; None if it is."""
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, command)), None)


def check(words: Sequence[str]) -> None:
    """AssertionError if a command that is not run names something that does not exist."""
    words = [word for word in words if not re.fullmatch(r"[A-Z]+=\S+", word)]
    if words[0] == "stormpg":
        check_flags(words)
    elif words[0] == "make":
        done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for word in words[2:]:
            found = re.fullmatch(r"(?:\.|stormpg)\[([\w,]+)\]", word)
            assert found is None or set(found[1].split(",")) <= set(extras), word
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None, words[2]
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words[1]


def check_flags(words: Sequence[str]) -> None:
    """AssertionError if `stormpg` has no such command, or the command no such flag. The words may be a form, with brackets."""
    command = typer.main.get_command(app)
    names = [word.strip("[]") for word in words[1:]]
    for name in names:
        if not hasattr(command, "commands") or name.startswith("-"):
            break
        assert name in command.commands, f"stormpg has no command {name}"
        command = command.commands[name]
    if "--algorithms" in names:
        given = names[names.index("--algorithms") + 1].split(",")
        assert set(given) <= set(ALGORITHMS), f"{' '.join(words)}: unknown algorithm"
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for name in names:
        flag = name.partition("=")[0]
        assert not flag.startswith("--") or flag in known | {"--help"}, f"{' '.join(words)}: no flag {flag}"
