"""Safe reading of untrusted files, with limits on size and nesting, and checks of types and values.

Every reader returns plain data or raises an InputError that names the file. The size is checked before a file is read.
"""

import dataclasses
import json
import math
import os
import stat
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stormpg.errors import InputError, legible, nearest, shown

Record = TypeVar("Record")

MOST_JSON = 2**24  # bytes; a run of a million seeds has a config.json of 13 MB
MOST_TOML = 2**20  # bytes
MOST_NESTED = 64  # levels
MOST_LETTERS = 200  # characters of a name
MOST_COUNTED = 10**6  # the default limit of whole numbers, such as the number of seeds


class Text:
    """Text of any length, in the annotations of a file's content. There, `str` is a name of limited length."""


def size_of(file: Path, expected: str) -> int:
    """Return the size of a file in bytes. Raise InputError if it does not exist, or is a folder, a pipe or a device."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        raise InputError(f"there is no file {file}; expected {expected}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{file} is not a file; expected {expected}.")
    return found.st_size


def read_bytes(file: Path, expected: str, most: int) -> bytes:
    """Return the content of a file. Raise InputError if it is larger than `most` bytes."""
    if (size := size_of(file, expected)) > most:
        raise InputError(f"{file} has {size:,} bytes; expected {expected} of at most {most:,} bytes.")
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror or error}).") from None


def read_text(file: Path, expected: str, most: int) -> str:
    """Return the UTF-8 text of a file."""
    try:
        return read_bytes(file, expected, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not {expected}: {error}.") from None


def read_json(file: Path, expected: str, most: int = MOST_JSON) -> Any:
    """Return the content of a JSON file: whole numbers below 2⁶³, at most MOST_NESTED levels, text that is valid UTF-8.

    NaN and the infinities are accepted, because results may contain them. A caller that needs finite numbers must check.
    """
    text = read_text(file, expected, most)
    try:
        content = json.loads(text, parse_int=_whole)
        _check_nesting(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON ({' '.join(str(error).split())[:200]}); expected {expected}.") from None
    return content


def read_object(file: Path, expected: str) -> dict[str, Any]:
    """Return the content of a file that holds one JSON object."""
    content = read_json(file, expected)
    if not isinstance(content, dict):
        raise InputError(f"{file} holds {shown(content)}; expected {expected}, a JSON object.")
    return content


def _whole(digits: str) -> int:
    """Return a whole number, or raise ValueError if it does not fit into 64 bits."""
    if len(digits) > 19 or not -(2**63) <= (number := int(digits)) < 2**63:
        raise ValueError(f"a whole number of {len(digits)} characters is too large")
    return number


def _check_nesting(content: Any) -> None:
    """Raise ValueError if content is nested too deeply or has invalid text. Iterates over levels to avoid deep recursion."""
    level = [content]
    for _ in range(MOST_NESTED):
        if not level:
            return
        below: list[Any] = []
        for value in level:
            for text in _texts(value):
                text.encode("utf-8")  # fails for half a surrogate pair such as "\\ud800", which cannot be written
            if isinstance(value, dict | list):
                below += (part for part in (value.values() if isinstance(value, dict) else value) if not _simple(part))
        level = below
    raise ValueError(f"more than {MOST_NESTED} levels of nesting")


def _simple(value: Any) -> bool:
    """Whether a value has no parts and no text."""
    return isinstance(value, int | float | None)


def _texts(value: Any) -> Iterator[str]:
    """Yield a value that is a text, or the keys of a dictionary."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value


def read_toml(file: Path, flag: str) -> dict[str, Any]:
    """Return the content of a TOML file that was given to a command flag."""
    expected = f"a TOML file for {flag}"
    text = read_text(file, expected, MOST_TOML)
    try:
        content = tomllib.loads(text)
        _check_nesting(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not TOML: {' '.join(str(error).split())[:200]}.") from None
    return content


def conforms(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON has the type of an annotation. Floats must be finite, and `str` of limited length."""
    if kind is Any:
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    inner = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, one) for one in inner)
    if origin in (list, tuple):
        if not isinstance(value, list):
            return False
        every = [inner[0]] * len(value) if origin is list or inner[1:] == (...,) else list(inner)
        return len(value) == len(every) and all(map(conforms, value, every))
    if origin in (dict, typing.get_origin(Mapping[str, Any])):
        return isinstance(value, dict) and all(conforms(one, inner[1]) for one in value.values())
    if kind is Text:
        return isinstance(value, str)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is not str or len(value) <= MOST_LETTERS)


def check_fields(
    content: Mapping[str, Any], kinds: Mapping[str, Any], where: str, most: Mapping[str, int] | None = None
) -> None:
    """Raise InputError if a value is missing, has another type, or is a whole number below 0 or above its limit in `most`."""
    for name, kind in kinds.items():
        value = content.get(name)
        if not conforms(value, kind):
            words = getattr(kind, "__name__", str(kind)) if not typing.get_args(kind) else str(kind)
            raise InputError(f"{where} has {name} = {shown(value)}; expected {words.replace('typing.', '')}.")
        if isinstance(value, int) and not 0 <= value <= (largest := (most or {}).get(name, MOST_COUNTED)):
            raise InputError(f"{where} has {name} = {value}; expected a whole number from 0 to {largest}.")


def as_record(kind: type[Record], content: Mapping[str, Any], where: str, most: Mapping[str, int] | None = None) -> Record:
    """Return a dataclass from a JSON object with its fields. The types are checked, and lists become tuples."""
    hints = typing.get_type_hints(kind)
    own = {field.name: hints[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in content:
        if name not in own:
            raise InputError(f"{where} has an unknown entry {shown(name)}: {nearest(name[:80], own)}.")
    check_fields(content, {name: own[name] for name in content}, where, most)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    with legible(where):
        return kind(**given)
