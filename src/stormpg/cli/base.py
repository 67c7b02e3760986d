"""Shared by all commands: the application, common flags, the machine-readable last line."""

import inspect
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from stormpg.algorithms import ALGORITHMS
from stormpg.runs.options import POLICY_OPTIONS, algorithm_options, without_secrets


class Interrupted(BaseException):
    """Carries a Ctrl-C through the command-line parser, which would otherwise reduce it to an exit code."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Commands(typer.core.TyperGroup):
    """The group of commands. It passes a Ctrl-C on as `Interrupted`, with its notes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from error


app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, help="Variance-reduced policy gradients.", rich_markup_mode=None
)

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print a last line as JSON.")]
Workers = Annotated[
    str | None, typer.Option("--workers", metavar="ADDRESS", help="ray (a cluster on this machine) or ray://HOST:PORT.")
]
ResultsFolder = Annotated[Path, typer.Option("--out", help="Folder to write to; an existing study is resumed.")]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file with defaults; its keys are the names of the flags.")]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each setting of the algorithms and policies to a command, which receives them as `settings`."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[bool | None if kind is bool else str | None, flag(name, kind, setting_help(name))],
        )
        for name, kind in (algorithm_options() | POLICY_OPTIONS).items()
    ]

    def command(**arguments: Any) -> None:
        settings = {p.name: arguments.pop(p.name) for p in more}
        function(**arguments, **settings)

    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def flag(name: str, kind: type, text: str) -> Any:
    """An option that arrives as text and is read by `runs.options`, so that wrong values get the library's error messages."""
    metavar = None if kind is bool else {float: "NUMBER", int: "INTEGER"}.get(kind, "NAME")
    return typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=metavar, show_default=False)


def setting_help(name: str) -> str:
    """The help text of a setting: the algorithms that have it."""
    users = [a for a, make in ALGORITHMS.items() if name in inspect.signature(make).parameters]
    return "a setting of the policy" if not users else "all algorithms" if len(users) == len(ALGORITHMS) else ", ".join(users)


def finish(as_json: bool, content: Any) -> None:
    """Print the machine-readable last line, if requested."""
    if as_json:
        print(json.dumps(content, default=str))


def this_command() -> str:
    """The command as it was given, without passwords."""
    return shlex.join(["stormpg", *(without_secrets(word) for word in sys.argv[1:])])
