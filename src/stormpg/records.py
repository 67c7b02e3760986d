"""Records: frozen dataclasses that JAX can trace.

Every object of the mathematics (policy, estimator, tracker, step, algorithm) is a record. Its float settings
are leaves of a pytree, so they are traced: another step size compiles nothing anew, and a list of records of one
shape stacks into a batch. Everything else (names, sizes, functions) is static and is part of the compilation key.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from optax.tree_utils import tree_vdot

Tree = Any  # a pytree of arrays
T = TypeVar("T")


def static(**options: Any) -> Any:
    """A field of a record that is not traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and a pytree whose leaves are its fields that are not `static`."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


@record
class Opaque:
    """Holds an object that is not a pytree of numbers (a user's policy, say), so that it can pass through `jit`."""

    content: Any = static()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "content":
            raise AttributeError(name)
        return getattr(self.content, name)


class Aside:
    """A static note on a record that is no part of its compilation key: all asides are equal."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aside)

    def __hash__(self) -> int:
        return 0


def traceable(thing: Any) -> Any:
    """The thing itself where all its leaves are numbers, otherwise wrapped whole as one static part."""
    numeric = all(isinstance(leaf, float | int | complex) or hasattr(leaf, "dtype") for leaf in jax.tree.leaves(thing))
    return thing if numeric else Opaque(thing)


def as_float(number: Any) -> Array:
    """A float setting as a strongly typed array, so that 1 and 1.0 and a tracer share one compiled program."""
    return jnp.asarray(number, dtype=jnp.result_type(float))


def stack(trees: Sequence[T]) -> T:
    """Trees of one structure as one tree with a leading axis. ValueError where the structures differ."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


# a + scale · b and the norm have another name in optax before and after 0.2.5; the other functions on trees are optax's own.
def add(a: T, b: Tree, scale: Any = 1.0) -> T:
    """a + scale · b."""
    return jax.tree.map(lambda x, y: x + scale * y, a, b)


def norm(a: Tree) -> Array:
    """The Euclidean norm over all leaves."""
    return jnp.sqrt(tree_vdot(a, a))


def all_finite(tree: Tree) -> Array:
    """Whether every number of the tree is finite. All leaves at once: leaf by leaf it is slower, and slower to compile."""
    floats = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.isfinite(jnp.concatenate(floats)).all() if floats else jnp.ones((), dtype=bool)


def in_steps(thing: T) -> T:
    """A policy or a network in the form that a rollout computes fastest, where it has one."""
    return thing.in_steps() if hasattr(thing, "in_steps") else thing


def own_method(thing: Any, name: str) -> Any:
    """A method that the thing's class itself defines; None where it has none, or inherits it.

    For a second form of a method, which is not that of a subclass that changes the first.
    """
    thing = thing.content if isinstance(thing, Opaque) else thing
    method = getattr(thing, name) if name in vars(type(thing)) else None
    return method if callable(method) else None
