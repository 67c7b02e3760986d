"""Records: frozen dataclasses that JAX can trace.

Every part of an algorithm (policy, estimator, tracker, schedule, step) is a record. Its float settings are leaves of a
pytree, so they are traced: another step size needs no new compilation, and a list of records of the same shape stacks into a
batch. Everything else (names, sizes, functions) is static and belongs to the compilation key.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from optax.tree_utils import tree_vdot

from stormpg.errors import InputError

Tree = Any  # a pytree of arrays
T = TypeVar("T")


def static(**options: Any) -> Any:
    """Declare a field of a record as static, that is, not traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def record(cls: type[T]) -> type[T]:
    """Turn a class into a frozen dataclass and a pytree. Its leaves are the fields that are not `static`."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


@record
class Opaque:
    """Wraps an object that is not a pytree of numbers, such as a user's policy, so that it can be passed through `jit`."""

    content: Any = static()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "content":
            raise AttributeError(name)
        return getattr(self.content, name)


class Aside:
    """A static note on a record that is not part of its compilation key: all asides are equal."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aside)

    def __hash__(self) -> int:
        return 0


def traceable(thing: Any) -> Any:
    """Return the object itself if all its leaves are numbers; otherwise wrap it as one static part."""
    numeric = all(isinstance(leaf, float | int | complex) or hasattr(leaf, "dtype") for leaf in jax.tree.leaves(thing))
    return thing if numeric else Opaque(thing)


# Outside a compiled program each is one call, instead of one for each leaf.


@functools.partial(jax.jit, inline=True)
def first_of(tree: Any) -> Any:
    """The first run of a block: runs are the first axis of all arrays."""
    return jax.tree.map(lambda x: x[0], tree)


@functools.partial(jax.jit, inline=True)
def as_block(tree: Any) -> Any:
    """A block of one run."""
    return jax.tree.map(lambda x: x[None], tree)


def as_float(number: Any) -> Array:
    """Convert a float setting to a strongly typed array, so that 1, 1.0 and a tracer share one compiled program."""
    return jnp.asarray(number, dtype=jnp.result_type(float))


def check_positive(**settings: Any) -> None:
    """Raise InputError if a setting is not above 0. A traced one cannot be checked."""
    for name, value in settings.items():
        if not isinstance(value, jax.core.Tracer) and not value > 0:
            raise InputError(f"{name} is {value}; expected a number above 0.")


def check_not_negative(**settings: Any) -> None:
    """Raise InputError for the first setting below 0. A traced one cannot be checked."""
    for name, value in settings.items():
        if not isinstance(value, jax.core.Tracer) and not value >= 0:
            raise InputError(f"{name} is {value}; expected a number of at least 0.")


def stack(trees: Sequence[T]) -> T:
    """Stack trees of the same structure along a new first axis. Raise ValueError if the structures differ."""
    stacked: T = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
    return stacked


# These two functions have different names in optax before and after 0.2.5. All others are taken from optax.
def add(a: T, b: Tree, scale: Any = 1.0) -> T:
    """a + scale · b."""
    total: T = jax.tree.map(lambda x, y: x + scale * y, a, b)
    return total


def norm(a: Tree) -> Array:
    """The Euclidean norm over all leaves."""
    return jnp.sqrt(tree_vdot(a, a))


def where(condition: Array, new: T, old: T) -> T:
    """`new` if the condition holds, else `old`. A node with a method `where(condition, old)` chooses for itself."""

    def chooses(node: Any) -> bool:
        return callable(getattr(node, "where", None))

    def chosen(new: Any, old: Any) -> Any:
        return new.where(condition, old) if chooses(new) else jnp.where(condition, new, old)

    made: T = jax.tree.map(chosen, new, old, is_leaf=chooses)
    return made


def all_finite(tree: Tree) -> Array:
    """Whether every number in the tree is finite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if floats and jax.default_backend() == "cpu":  # one check compiles faster than many; a GPU is faster without the copy
        floats = [jnp.concatenate([jnp.ravel(leaf) for leaf in floats])]
    return functools.reduce(jnp.logical_and, [jnp.isfinite(leaf).all() for leaf in floats], jnp.ones((), dtype=bool))


def in_steps(thing: T) -> T:
    """The form of a policy or a network that is fastest in a rollout, if it has one."""
    return thing.in_steps() if hasattr(thing, "in_steps") else thing


def own_method(thing: Any, name: str) -> Any:
    """A method that the object's own class defines; None if it has none or inherits it.

    Used for faster variants of a method: a subclass that overrides the method must not get the variant of its parent.
    """
    thing = thing.content if isinstance(thing, Opaque) else thing
    method = getattr(thing, name) if name in vars(type(thing)) else None
    return method if callable(method) else None
