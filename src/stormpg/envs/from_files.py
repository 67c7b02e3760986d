"""Environments named in untrusted files. A file cannot make its reader import a module, download data or run code."""

import re
from collections.abc import Mapping
from typing import Any

from stormpg.envs import make
from stormpg.errors import InputError, legible, shown
from stormpg.files.reading import conforms

WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")  # not a path, and not module:name
# The largest whole number that a setting may be, by the prefix of the environment.
LARGEST = {"": 1000, "gym": 10**6, "envpool": 10**6, "box2d": 10**6, "gymnax": 10**4, "brax": 10**4}
FETCHING = ("gymnax:MNISTBandit-bsuite",)  # these download data when they are made
WINDOWS = ("human",)  # values of render_mode that open a window


def from_file(name: str, settings: Mapping[str, Any], file: Any) -> Any:
    """Return the environment named in a file. Raise InputError if it is unknown, or if `make` would import a module for it.

    Settings must be numbers of moderate size, true, false, null or plain words: a path or `module:name` could make the
    environment load a file or import a module.
    """
    check_name(name, file)
    prefix = name.partition(":")[0] if ":" in name else ""
    for key, value in settings.items():
        number = conforms(value, float) and abs(value) <= (LARGEST.get(prefix, 0) if isinstance(value, int) else 1e9)
        word = isinstance(value, str) and WORD.fullmatch(value) is not None and value not in WINDOWS
        if not (number or word or value is None or isinstance(value, bool)) or not key.isidentifier():
            raise InputError(
                f"{file} gives {shown(name)} the setting {shown(key)} = {shown(value)}, which is not allowed in a file: "
                "make the environment yourself and give it as env=."
            )
    try:
        with legible(f"the environment {shown(name)}"):
            return make(name, **settings)
    except InputError as error:
        raise InputError(f"{file}: {error} Give an environment of your own as env=, in Python.") from error


def check_name(name: str, file: Any) -> None:
    """Raise InputError if a file may not use this name."""
    if name.count(":") > 1 or name in FETCHING:
        why = "download data" if name in FETCHING else "import a module"
        raise InputError(
            f"{file} names the environment {shown(name)}, which would {why}; a file may not ask for that. "
            "Run the original command again, or make the environment yourself and give it as env=."
        )
