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
from stormpg.algorithms.settings import SETTINGS
from stormpg.runs.options import POLICY_OPTIONS, POLICY_SETTINGS, algorithm_options, without_secrets
from stormpg.version import __version__


class Interrupted(BaseException):
    """Carries a Ctrl-C through the command-line parser, which would otherwise reduce it to an exit code."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


# The groups of commands, and of options.
TRAINING, COMPARING, ABOUT = "Train", "Compare", "Measure and look up"
BUDGET, OUTSIDE, FILES = "The run", "Environments outside JAX", "Files and output"
ALGORITHM_PANEL, POLICY_PANEL = "Settings of the algorithm", "Settings of the policy"
ORDER = ("train", "evaluate", "render", "tune", "compare", "reproduce", "report", "list", "doctor", "theory", "bench")


class Commands(typer.core.TyperGroup):
    """The group of commands, in the order of `ORDER`. It passes a Ctrl-C on as `Interrupted`, with its notes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Variance-reduced policy gradients: STORM-PG, what it is compared with, and what came after.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def print_version(wanted: bool) -> None:
    """Print the version and exit, if requested."""
    if wanted:
        print(f"stormpg {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the name of a command."""


def file_option(name: str, text: str, metavar: str | None = None) -> Any:
    """An option about files and output."""
    return typer.Option(name, help=text, metavar=metavar, rich_help_panel=FILES)


Out = Annotated[Path | None, file_option("--out", "Folder to write to.")]
Json = Annotated[bool, file_option("--json", "Print a last line as JSON.")]
Workers = Annotated[
    str | None,
    typer.Option("--workers", metavar="ADDRESS", help="ray (a cluster on this machine) or ray://HOST:PORT."),
]
ResultsFolder = Annotated[Path, file_option("--out", "Folder to write to; an existing study is resumed.")]
Config = Annotated[Path | None, file_option("--config", "TOML file with defaults; its keys are the names of the flags.")]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each setting of the algorithms and policies to a command, which receives them as `settings`."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[bool | None if kind is bool else str | None, setting_flag(name, kind)],
        )
        for name, kind in (algorithm_options() | POLICY_OPTIONS).items()
    ]

    def command(**arguments: Any) -> None:
        settings = {p.name: arguments.pop(p.name) for p in more}
        function(**arguments, **settings)

    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def flag(name: str, kind: type, text: str, panel: str | None = None) -> Any:
    """An option that arrives as text and is read by `runs.options`, so that wrong values get the library's error messages."""
    metavar = None if kind is bool else {float: "NUMBER", int: "INTEGER"}.get(kind, "NAME")
    names = f"--{name.replace('_', '-')}"
    return typer.Option(names, help=text, metavar=metavar, show_default=False, rich_help_panel=panel)


def setting_flag(name: str, kind: type) -> Any:
    """The option of a setting of algorithms or policies."""
    panel = POLICY_PANEL if name in POLICY_OPTIONS else ALGORITHM_PANEL
    return flag(name, kind, setting_help(name), panel)


def setting_help(name: str) -> str:
    """The help text of a setting: what it means, and the algorithms that have it."""
    if name in POLICY_SETTINGS:
        return f"{POLICY_SETTINGS[name].text}."
    known = SETTINGS.get(name)
    users = [a for a, make in ALGORITHMS.items() if name in inspect.signature(make).parameters]
    more = f" and {len(users) - 2} others" if len(users) > 3 else ""
    who = "" if len(users) == len(ALGORITHMS) else f" [{', '.join(users[: 2 if more else 3])}{more}]"
    return f"{known.text if known else name}.{who}".replace("[", r"\[")


def finish(as_json: bool, content: Any) -> None:
    """Print the machine-readable last line, if requested."""
    if as_json:
        print(json.dumps(content, default=str))


def this_command() -> str:
    """The command as it was given, without passwords."""
    return shlex.join(["stormpg", *(without_secrets(word) for word in sys.argv[1:])])
