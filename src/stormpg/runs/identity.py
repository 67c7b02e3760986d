"""The identity of a run as data, so that a run is only ever resumed with the same algorithm, policy and environment.

An algorithm, a policy and an environment are trees of numbers, names and functions. `describe` flattens such a tree into a
mapping from paths to plain values. A function is described by its module, its qualified name, a digest of its source, and the
variables it closes over. Nothing depends on memory addresses or on the process. In installed packages, including this one, a
name is assumed to always mean the same thing; their versions are in the run's config.json.
"""

import dataclasses
import functools
import hashlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.pytrees import Aside, Opaque

FEW = 16  # arrays with at most this many numbers are written out; larger ones are hashed
DEEPEST = 40  # levels of nesting

Description = dict[str, Any]


def identity(training: Any) -> dict[str, Description]:
    """The identity of the runs of a `Training`, without seeds and horizon, which config.json already contains."""
    return {
        "environment": describe(training.env.parts),
        "algorithm": describe_all(training.algorithms),
        "policy": describe_all(training.policies),
    }


def describe(thing: Any) -> Description:
    """Describe all parts of `thing`: a mapping from paths such as "step.eta" to numbers, names and digests."""
    return dict(_walk(thing, "", ()))


def describe_all(things: Sequence[Any]) -> Description:
    """Describe several things of the same shape: the first in full, and the differences of each other one under its index."""
    first, *others = map(describe, things)
    whole = dict(first)
    for number, other in enumerate(others, 1):
        missing = {path: None for path in first if path not in other}
        differs = {path: value for path, value in other.items() if path not in first or first[path] != value}
        whole |= {f"[{number}].{path}".rstrip("."): value for path, value in (missing | differs).items()}
    return whole


def difference(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first path at which two descriptions differ, with both values; None if they are equal."""
    for path in [*wanted, *(path for path in held if path not in wanted)]:
        if held.get(path) != wanted.get(path):
            return path, held.get(path), wanted.get(path)
    return None


def _walk(thing: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield (path, plain value) for every part. `above`: ids of the enclosing objects, as a function may close over itself."""
    if isinstance(thing, Opaque):
        thing = thing.content
    if thing is None or isinstance(thing, bool | int | str):
        yield path, thing
    elif isinstance(thing, float):
        yield path, repr(thing)  # JSON has neither infinity nor NaN
    elif isinstance(thing, Aside):
        return
    elif id(thing) in above or len(above) > DEEPEST:
        yield path, "itself"
    elif hasattr(thing, "dtype") and hasattr(thing, "shape"):
        yield path, _array(thing)
    else:
        yield from _parts(thing, path, (*above, id(thing)))


def _parts(thing: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    parts: Mapping[Any, Any]
    if isinstance(thing, functools.partial):
        parts = {"function": thing.func, "arguments": thing.args, "named": thing.keywords}
    elif isinstance(thing, type):
        yield path, _code(thing)
        return
    elif isinstance(thing, types.MethodType):
        parts = {"method": thing.__func__, "of": thing.__self__}
    elif callable(function := inspect.unwrap(thing) if callable(thing) else None) and _is_function(function):
        yield path, _code(function)
        parts = {f"closure.{name}": part for name, part in _closure(function).items()}
    elif isinstance(thing, Mapping):
        parts = {str(name): thing[name] for name in thing}
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        yield path, _code(type(thing))
        parts = thing._asdict()  # type: ignore[attr-defined]
    elif isinstance(thing, Sequence | set | frozenset):
        parts = dict(enumerate(thing if isinstance(thing, Sequence) else sorted(thing, key=repr)))
    else:
        yield path, _code(type(thing))
        parts = _attributes(thing)
    for name, part in parts.items():
        yield from _walk(part, f"{path}.{name}" if path else str(name), above)


def _is_function(thing: Any) -> bool:
    return isinstance(thing, types.FunctionType | types.BuiltinFunctionType | np.ufunc)


def _attributes(thing: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(thing):
        return {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    # The state of a random generator or an environment changes, so it is not part of the identity.
    if _is_installed(type(thing).__module__) or hasattr(thing, "reset"):
        return {}
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(thing, name)]
    return {name: getattr(thing, name) for name in slots} | dict(vars(thing) if hasattr(thing, "__dict__") else {})


def _closure(function: Any) -> dict[str, Any]:
    """The values a function uses besides its arguments: its closure, its defaults, and the numeric globals it refers to."""
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    used = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    if not _is_installed(function.__module__):
        globals_ = function.__globals__
        numbers = {name: globals_[name] for name in code.co_names if type(globals_.get(name)) in (int, float)}
        used = numbers | used
    return used | {"defaults": function.__defaults__} if function.__defaults__ else used


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # not yet assigned
        return False


def _array(thing: Any) -> Any:
    if jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        thing = jax.random.key_data(thing)
    values = np.asarray(thing)
    if values.size > FEW:
        return f"{values.dtype}{list(values.shape)} {_digest(np.ascontiguousarray(values).tobytes())}"
    plain = [repr(v) if isinstance(v, float) else v if isinstance(v, bool | int) else str(v) for v in values.ravel().tolist()]
    return plain[0] if values.shape == () else f"{list(values.shape)} {' '.join(map(str, plain))}"


def name_of(thing: Any) -> str:
    """The module and qualified name of a function or class, or of the object's type if it has no name."""
    thing = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{thing.__module__ or 'builtins'}.{thing.__qualname__}"


def _code(thing: Any) -> str:
    """Describe a function or class by its name, and also by its source if it is not from an installed package."""
    module = getattr(thing, "__module__", None) or "builtins"
    if module.partition(".")[0] == "stormpg":  # without the module, so that files of this package can be moved
        return f"stormpg:{thing.__qualname__}"
    return name_of(thing) if _is_installed(module) else f"{name_of(thing)} {_digest(_source(thing))}"


@functools.cache
def _is_installed(module: str) -> bool:
    """Whether a module belongs to Python, to this package, or to an installed package."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("stormpg", "builtins"):
        return top != "__main__"
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return any(file.startswith(folder) for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def _source(thing: Any) -> bytes:
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):  # entered at a prompt, or compiled
        code = getattr(thing, "__code__", None)
        return b"" if code is None else code.co_code + repr([c for c in code.co_consts if not hasattr(c, "co_code")]).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
