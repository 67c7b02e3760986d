"""Shared by all commands: the application, common flags, the machine-readable last line."""

import importlib.util
import inspect
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer
from typer.models import OptionInfo

from stormpg.algorithms import ALGORITHMS, DEFAULT
from stormpg.algorithms.registry import defaults_of
from stormpg.algorithms.settings import SETTINGS
from stormpg.cli.help import (
    BUDGET,
    DEFAULT_PANEL,
    FILES,
    METAVARS,
    OTHER,
    Commands,
    algorithms_help,
    escaped,
    panel_of,
    setting_help,
    starting,
)
from stormpg.envs import ADAPTERS, ENVIRONMENTS
from stormpg.errors import EXTRAS, InputError
from stormpg.runs.options import POLICY_OPTIONS, algorithm_options, without_secrets
from stormpg.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Variance-reduced policy gradients: STORM-PG, what it is compared with, and what came after.",
    epilog="stormpg COMMAND --help shows the options of a command.",
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


Env = Annotated[
    str | None,
    typer.Argument(
        metavar="ENV",
        help=f"{', '.join(ENVIRONMENTS)}; {', '.join(f'{prefix}:NAME' for prefix in ADAPTERS)}.",
        autocompletion=starting(ENVIRONMENTS),
    ),
]
AlgorithmName = Annotated[
    str | None, typer.Option("--algorithm", help=algorithms_help(), autocompletion=starting(ALGORITHMS), rich_help_panel=BUDGET)
]
HORIZON = r"Most steps of an episode. \[default: the environment's]"
Horizon = Annotated[
    str | None,
    typer.Option(metavar="INTEGER", help=HORIZON, rich_help_panel=BUDGET),
]
Out = Annotated[Path | None, file_option("--out", "Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print a last line as JSON.", rich_help_panel=OTHER)]
Workers = Annotated[
    str | None,
    typer.Option("--workers", metavar="ADDRESS", help="ray (a cluster here) or ray://HOST:PORT.", rich_help_panel=OTHER),
]
ResultsFolder = Annotated[Path, file_option("--out", "Folder to write to. A study that it holds is resumed.")]
Config = Annotated[Path | None, file_option("--config", "TOML file of settings; flags override it.")]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each setting of the algorithms and policies to a command, which receives them as `settings`."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    options = algorithm_options()
    order = (*(name for name in defaults_of(ALGORITHMS[DEFAULT]) if panel_of(name) == DEFAULT_PANEL), *SETTINGS)
    options = {name: options[name] for name in order if name in options} | options | POLICY_OPTIONS
    switches = [name for name, kind in options.items() if kind is bool]
    flags = {name: (kind, flag(name, kind, setting_help(name), panel_of(name))) for name, kind in options.items()}
    flags |= {f"no_{name}": (bool, typer.Option(f"--no-{dashed(name)}", hidden=True)) for name in switches}
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[bool | None if kind is bool else str | None, option],
        )
        for name, (kind, option) in flags.items()
    ]

    def wrapped(**arguments: Any) -> None:
        settings = {parameter.name: arguments.pop(parameter.name) for parameter in more}
        for name in switches:
            if settings.pop(f"no_{name}"):
                if settings[name]:
                    raise InputError(f"--{dashed(name)} and --no-{dashed(name)} are both given: leave out one of them.")
                settings[name] = False
        function(**arguments, **settings)

    wrapped.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    return wrapped


def dashed(name: str) -> str:
    """The name of a flag."""
    return name.replace("_", "-")


def flag(name: str, kind: type, text: str, panel: str | None = None, default: Any = None) -> Any:
    """An option that arrives as text and is read by `runs.options`, so that wrong values get the library's error messages."""
    text = text if default is None else f"{text} {escaped(f'[default: {default}]')}"
    metavar = METAVARS.get(kind, "NAME")
    return typer.Option(f"--{dashed(name)}", help=text, metavar=metavar, show_default=False, rich_help_panel=panel)


def command(name: str, panel: str | None = None, group: typer.Typer = app) -> Callable[[F], F]:
    """Register a command. Its options get usual words for their types: NUMBER, INTEGER, NAME, PATH; none for a switch."""

    def register(function: F) -> F:
        for parameter in inspect.signature(function).parameters.values():
            kind, option = get_args(parameter.annotation)[:2]
            if isinstance(option, OptionInfo) and option.metavar is None:
                kinds = [one for one in (get_args(kind) or (kind,)) if one is not type(None)]
                option.metavar = METAVARS.get(kinds[0], "NAME")
        return group.command(name, rich_help_panel=panel)(function)

    return register


def need(extra: str) -> None:
    """Raise ModuleNotFoundError if a package of an extra is missing: before a study, which draws figures only at its end."""
    for package in (package for package, name in EXTRAS.items() if name == extra):
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def finish(as_json: bool, content: Any) -> None:
    """Print the machine-readable last line, if requested."""
    if as_json:
        print(json.dumps(content, default=str))


def this_command() -> str:
    """The command as it was given, without passwords."""
    return shlex.join(["stormpg", *(without_secrets(word) for word in sys.argv[1:])])
