"""The help of the command: the order of commands, the groups of options, and what is said about each setting."""

import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer.core

from stormpg.algorithms import ALGORITHMS, DEFAULT
from stormpg.algorithms.registry import defaults_of
from stormpg.algorithms.settings import COUNT, SETTINGS, Setting
from stormpg.runs.options import POLICY_SETTINGS

# The groups of commands, and of options.
TRAINING, COMPARING, ABOUT = "Train", "Compare", "Measure and look up"
BUDGET, OUTSIDE, FILES, SAFETY = "The run", "Environments outside JAX", "Files and output", "Checkpoints and logs"
SEARCH, OTHER = "The search", "Other options"
MOST_PANEL = f"Settings of most algorithms ({DEFAULT} has B and gamma)"
DEFAULT_PANEL, SOME_PANEL, POLICY_PANEL = f"Settings of {DEFAULT}", "Settings of some algorithms", "Settings of the policy"
PANELS = (BUDGET, SEARCH, DEFAULT_PANEL, MOST_PANEL, SOME_PANEL, POLICY_PANEL, OUTSIDE, FILES, SAFETY, OTHER)
ORDER = ("train", "evaluate", "render", "tune", "compare", "reproduce", "report", "list", "doctor", "theory", "bench")

USERS = {name: [one for one, make in ALGORITHMS.items() if name in defaults_of(make)] for name in SETTINGS}
MANY = 6  # algorithms that have a setting of the first group
FEW = 5  # that are all named in the help
METAVARS: dict[Any, str] = {float: "NUMBER", int: "INTEGER", Path: "PATH", bool: ""}  # "NAME" for all others


class Interrupted(BaseException):
    """Carries a Ctrl-C through the command-line parser, which would otherwise reduce it to an exit code."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Commands(typer.core.TyperGroup):
    """A group of commands, in the order of `ORDER`. It passes a Ctrl-C on as `Interrupted`, with its notes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: ORDER.index(name) if name in ORDER else 0)

    def get_params(self, ctx: Any) -> Any:
        return tidied(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, Commands):
            own = command.get_params
            command.get_params = types.MethodType(lambda _, inner: tidied(own(inner)), command)
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from error


def tidied(parameters: Iterable[Any]) -> list[Any]:
    """The parameters of a command in the order of `PANELS`, without the type of a switch or an argument, which says nothing."""
    found = list(parameters)
    last = None if any(one.name == "version" for one in found) else OTHER
    for one in found:
        if one.param_type_name == "argument":
            one.display_type_rich = lambda ctx: ""
        elif getattr(one, "is_flag", False):
            one.metavar = ""
        if one.default is None:  # earlier versions of Typer show it
            one.show_default = False
        if one.name == "help":
            one.rich_help_panel = last
    place = lambda one: PANELS.index(one.rich_help_panel) if one.rich_help_panel in PANELS else -1
    return sorted(found, key=place)


def panel_of(name: str) -> str:
    """The group of a setting in the help."""
    if name in POLICY_SETTINGS:
        return POLICY_PANEL
    users = USERS.get(name, ())
    return MOST_PANEL if len(users) >= MANY else DEFAULT_PANEL if DEFAULT in users else SOME_PANEL


def setting_help(name: str) -> str:
    """The help text of a setting: symbol, meaning, allowed values, and which algorithms have it if few have."""
    setting = POLICY_SETTINGS.get(name) or SETTINGS.get(name) or Setting(name)
    users = USERS.get(name, [])
    others = [one for one in users if one != DEFAULT]
    who = ""
    if panel_of(name) == SOME_PANEL:
        who = f" [{', '.join(users[:FEW])}{' ...' * (len(users) > FEW)}]"
    elif panel_of(name) == DEFAULT_PANEL and others:
        who = f" [also {', '.join(others)}]"
    off = f" (off: --no-{name.replace('_', '-')})" if switched_on(name) else ""
    text = setting.text[:1].upper() + setting.text[1:] if setting.text[:1].isascii() and not setting.symbol else setting.text
    allowed = f" ({setting.allowed.short})" if setting.allowed and setting.allowed is not COUNT else ""
    return escaped(f"{text}{allowed}{off}.{who}")


def escaped(text: str) -> str:
    """A text whose brackets are not markup."""
    return text.replace("[", r"\[")


def switched_on(name: str) -> bool:
    """Whether a switch of some algorithm, or of the policy that one recommends, is on by default."""
    defaults = [defaults_of(ALGORITHMS[one])[name] for one in USERS.get(name, ())]
    return name in ("learn_sigma", "normalise") or True in [one for one in defaults if isinstance(one, bool)]


def starting(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The completion of an incomplete name in a shell."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def algorithms_help() -> str:
    """The names of all algorithms, the default first."""
    names = ", ".join(name for name in ALGORITHMS if name != DEFAULT)
    return f"{DEFAULT} (the default), {names}."
