"""What all commands share: the application, common flags, the machine-readable last line."""

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
    """Ctrl-C on its way through the command-line parser, which would make a bare exit code of it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Commands(typer.core.TyperGroup):
    """The commands, out of which a Ctrl-C comes with all that it says."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from error


app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, help="Variance-reduced policy gradients.", rich_markup_mode=None
)

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print a last line in JSON.")]
Workers = Annotated[
    str | None, typer.Option("--workers", metavar="ADDRESS", help="ray (a cluster on this machine) or ray://HOST:PORT.")
]
ResultsFolder = Annotated[Path, typer.Option("--out", help="Folder to write to; a study that is there is resumed.")]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file of defaults; its keys are the flags' names.")]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each setting of the algorithms and policies; they arrive as its `settings`."""
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
    """An option whose text `options` reads, so that a wrong value gets the message a wrong argument gets."""
    metavar = None if kind is bool else {float: "NUMBER", int: "INTEGER"}.get(kind, "NAME")
    return typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=metavar, show_default=False)


def setting_help(name: str) -> str:
    """Which algorithms have a setting."""
    users = [a for a, make in ALGORITHMS.items() if name in inspect.signature(make).parameters]
    return "a setting of the policy" if not users else "all algorithms" if len(users) == len(ALGORITHMS) else ", ".join(users)


def finish(as_json: bool, content: Any) -> None:
    """The machine-readable last line."""
    if as_json:
        print(json.dumps(content, default=str))


def this_command() -> str:
    """The command as it was given, but for passwords."""
    return shlex.join(["stormpg", *(without_secrets(word) for word in sys.argv[1:])])
