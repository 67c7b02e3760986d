"""Networks: anything with `init(key) -> params` and `apply(params, observation) -> output`.

The built-in ones are frozen dataclasses, equal when their fields are, so that two policies of one shape share one
compiled program. A user's own network is an (init, apply) pair, or an Equinox module or a function key -> module.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from stormpg.errors import InputError
from stormpg.records import Tree, own_method

FEW_INPUTS = 32  # up to so many, multiply-adds are written out


class Network(Protocol):
    def init(self, key: Array) -> Tree: ...
    def apply(self, params: Tree, observation: Array) -> Array: ...


@dataclasses.dataclass(frozen=True)
class MLP:
    """tanh hidden layers and a linear output; Glorot-uniform weights, zero biases."""

    sizes: tuple[int, ...]  # input, hidden ..., output
    stepwise: bool = False  # the first layer by multiply-adds, see `in_steps`

    def init(self, key: Array) -> Tree:
        # One draw for all layers: every random draw in a program costs a third of a second of compilation.
        shapes = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        draws = jax.random.uniform(key, (sum(rows * columns for rows, columns in shapes),), minval=-1.0, maxval=1.0)
        layers, used = [], 0
        for rows, columns in shapes:
            weight = draws[used : used + rows * columns].reshape(rows, columns) * math.sqrt(6 / (rows + columns))
            layers.append({"weight": weight, "bias": jnp.zeros(columns)})
            used += rows * columns
        return layers

    def apply(self, params: Tree, observation: Array) -> Array:
        *hidden, last = params
        for number, layer in enumerate(hidden):
            if self.stepwise and number == 0:
                total = layer["bias"]
                for x, weight in zip(observation, layer["weight"], strict=True):
                    total = total + x * weight
            else:
                total = observation @ layer["weight"] + layer["bias"]
            observation = jnp.tanh(total)
        return observation @ last["weight"] + last["bias"]

    def apply_rows(self, params: Tree, observations: Array) -> Array:
        """The same for many observations, [n, inputs], in the form that is fastest to differentiate."""
        if not self.sizes[0] <= FEW_INPUTS or len(self.sizes) < 3:
            return jax.vmap(self.apply, (None, 0))(params, observations)
        first, *rest = params
        hidden = jnp.tanh(few_inputs(observations, first["weight"], first["bias"]))
        return jax.vmap(dataclasses.replace(self, sizes=self.sizes[1:], stepwise=False).apply, (None, 0))(rest, hidden)

    def in_steps(self) -> "MLP":
        """The same, for a rollout: a few observations at a time, and no gradient.

        The first layer is then a sum that XLA puts into one loop with its tanh; a matrix product is a call of its own, and
        in a gradient it is the faster way.
        """
        return dataclasses.replace(self, stepwise=self.sizes[0] <= FEW_INPUTS)


@jax.custom_jvp
def few_inputs(rows: Array, weight: Array, bias: Array) -> Array:
    """rows @ weight + bias for rows of a few numbers.

    On CPUs multiply-adds share one loop with the tanh that follows, where a product with so short an inner side is slow;
    backwards the long side is the inner one, and a product of matrices is the fast way.
    """
    total = bias
    for column, weights in zip(rows.T, weight, strict=True):
        total = total + column[:, None] * weights
    return total


def _few_inputs_tangent(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """The tangent is a product of matrices, so that its transpose, which is the reverse mode, is one too."""
    (rows, weight, bias), (d_rows, d_weight, d_bias) = primals, tangents
    given = lambda tangent: not isinstance(tangent, SymbolicZero)
    full = lambda tangent: tangent if given(tangent) else jnp.zeros(tangent.shape, tangent.dtype)
    value = few_inputs(rows, weight, bias)
    total = jnp.zeros_like(value)
    if given(d_weight) or given(d_bias):  # one product for both: reversed, it sums over the rows once
        ones = jnp.concatenate((rows.T, jnp.ones((1, len(rows)), rows.dtype)))
        total = jnp.einsum("kn,km->nm", ones, jnp.concatenate((full(d_weight), full(d_bias)[None])))
    if given(d_rows):
        total = total + d_rows @ weight
    return value, total


few_inputs.defjvp(_few_inputs_tangent, symbolic_zeros=True)


@dataclasses.dataclass(frozen=True)
class LinearFeatures:
    """ξᵀψ(s), the mean of the paper's §2.3, starting from ξ = 0."""

    psi: Callable[[Array], Array]
    feature_dim: int
    output_dim: int

    def init(self, key: Array) -> Tree:
        return jnp.zeros((self.feature_dim, self.output_dim))

    def apply(self, params: Tree, observation: Array) -> Array:
        return self.psi(observation) @ params


@dataclasses.dataclass(frozen=True)
class LookupTable:
    """One row of outputs for each integer observation, starting from 0."""

    rows: int
    columns: int

    def init(self, key: Array) -> Tree:
        return jnp.zeros((self.rows, self.columns))

    def apply(self, params: Tree, observation: Array) -> Array:
        return params[observation]


class Pair(NamedTuple):
    """A user's (init, apply)."""

    init: Callable[[Array], Tree]
    apply: Callable[[Tree, Array], Array]


def network(thing: Any) -> Network:
    """A network from what a user may bring: one already, an (init, apply) pair, an Equinox module or key -> module."""
    if hasattr(thing, "init") and hasattr(thing, "apply"):
        return thing
    if isinstance(thing, tuple) and len(thing) == 2 and all(callable(part) for part in thing):
        return Pair(*thing)
    if callable(thing):
        return _equinox(thing)
    raise InputError(
        f"cannot make a network of {type(thing).__name__}: give an (init, apply) pair, an Equinox module, "
        "or a function from a key to an Equinox module."
    )


def on_rows(network: Network, params: Tree, observations: Array) -> Array:
    """What a network gives for many observations, [n, ...]."""
    rows = own_method(network, "apply_rows") or jax.vmap(network.apply, (None, 0))
    return rows(params, observations)


def _equinox(thing: Callable[..., Any]) -> Network:
    """A module keeps its own first weights for every seed; a function key -> module draws new ones for each."""
    import equinox

    build = (lambda key: thing) if isinstance(thing, equinox.Module) else thing
    shapes = equinox.filter_eval_shape(build, jax.random.key(0))
    if not isinstance(shapes, equinox.Module):
        raise InputError(f"{thing} returned {type(shapes).__name__}; expected an Equinox module for a given key.")
    rest = equinox.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]
    return Pair(
        init=lambda key: equinox.filter(build(key), equinox.is_array),
        apply=lambda params, observation: equinox.combine(params, rest)(observation),
    )
