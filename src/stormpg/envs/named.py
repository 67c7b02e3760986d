"""Environments that a file names. A file's word is not its reader's: nothing is imported, fetched or run at its choice."""

import re
from collections.abc import Mapping
from typing import Any

from stormpg.envs import make
from stormpg.errors import InputError, legible, shown
from stormpg.files.reading import conforms

WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")  # no path and no module:name
LARGEST = {"": 1000, "gym": 10**6, "box2d": 10**6, "gymnax": 10**4, "brax": 10**4}  # sizes, by the kind of environment
FETCHING = ("gymnax:MNISTBandit-bsuite",)  # these load data over the network when they are made
WINDOWS = ("human",)  # a render_mode that opens one


def from_file(name: str, settings: Mapping[str, Any], file: Any) -> Any:
    """The environment that a file names; InputError for one that `make` would import a module for, or does not know.

    Settings are numbers of modest size, true, false and plain words: a path or `module:name` among them may have the
    environment load or import what it names.
    """
    check_name(name, file)
    prefix = name.partition(":")[0] if ":" in name else ""
    for key, value in settings.items():
        number = conforms(value, float) and abs(value) <= (LARGEST.get(prefix, 0) if isinstance(value, int) else 1e9)
        word = isinstance(value, str) and WORD.fullmatch(value) is not None and value not in WINDOWS
        if not (number or word or value is None or isinstance(value, bool)) or not key.isidentifier():
            raise InputError(
                f"{file} gives {shown(name)} the setting {shown(key)} = {shown(value)}, which is not taken from a file: "
                "make the environment yourself and give it as env=."
            )
    try:
        with legible(f"the environment {shown(name)}"):
            return make(name, **settings)
    except InputError as error:
        raise InputError(f"{file}: {error} An environment of your own is given as env=, in Python.") from error


def check_name(name: str, file: Any) -> None:
    """InputError where a name is not one that a file may give."""
    if name.count(":") > 1 or name in FETCHING:
        why = "have its data fetched" if name in FETCHING else "have a module imported"
        raise InputError(
            f"{file} names the environment {shown(name)}, which would {why}; a file may not ask for that. "
            "Give the command that made it again, or make the environment yourself and give it as env=."
        )
