"""Networks: any object with `init(key) -> params` and `apply(params, observation) -> output`.

The built-in networks are frozen dataclasses and compare equal if their fields do, so that two policies of the same shape share
one compiled program. A user's network is an (init, apply) pair, an Equinox module, or a function key -> module.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from stormpg.errors import InputError
from stormpg.pytrees import Tree, own_method

FEW_INPUTS = 32  # with at most this many inputs, the first layer is written as multiply-adds


class Network(Protocol):
    """The interface of a network, for one observation."""

    def init(self, key: Array) -> Tree: ...
    def apply(self, params: Tree, observation: Array) -> Array: ...


@dataclasses.dataclass(frozen=True)
class MLP:
    """Hidden layers of tanh units and a linear output layer. Weights start Glorot-uniform, biases at zero."""

    sizes: tuple[int, ...]  # input, hidden ..., output
    stepwise: bool = False  # compute the first layer by multiply-adds, see `in_steps`
    output_scale: float = 1.0  # a factor on the initial weights of the output layer

    def init(self, key: Array) -> Tree:
        # One draw for all layers: every random draw in a program adds a third of a second to its compilation.
        shapes = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        draws = jax.random.uniform(key, (sum(rows * columns for rows, columns in shapes),), minval=-1.0, maxval=1.0)
        layers, used = [], 0
        for rows, columns in shapes:
            weight = draws[used : used + rows * columns].reshape(rows, columns) * math.sqrt(6 / (rows + columns))
            layers.append({"weight": weight, "bias": jnp.zeros(columns)})
            used += rows * columns
        if self.output_scale != 1.0:
            layers[-1]["weight"] *= self.output_scale
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
        output: Array = observation @ last["weight"] + last["bias"]
        return output

    def apply_rows(self, params: Tree, observations: Array) -> Array:
        """Return `apply` for many observations, [n, inputs], in the form that is fastest to differentiate."""
        if not self.sizes[0] <= FEW_INPUTS or len(self.sizes) < 3:
            return jax.vmap(self.apply, (None, 0))(params, observations)
        first, *rest = params
        hidden = jnp.tanh(few_inputs(observations, first["weight"], first["bias"]))
        return jax.vmap(dataclasses.replace(self, sizes=self.sizes[1:], stepwise=False).apply, (None, 0))(rest, hidden)

    def in_steps(self) -> "MLP":
        """Return the same network for a rollout: a few observations at a time, and no gradient.

        XLA fuses the sum of the first layer with its tanh into one loop. A matrix product would be a separate call; it is
        faster only if a gradient is computed.
        """
        return dataclasses.replace(self, stepwise=self.sizes[0] <= FEW_INPUTS)


@jax.custom_jvp
def few_inputs(rows: Array, weight: Array, bias: Array) -> Array:
    """Return rows @ weight + bias for rows of a few numbers.

    On CPUs, multiply-adds share one loop with the following tanh, while a matrix product with such a short inner dimension is
    slow. In the backward pass the inner dimension is the long one, and a matrix product is fast.
    """
    total = bias
    for column, weights in zip(rows.T, weight, strict=True):
        total = total + column[:, None] * weights
    return total


def _few_inputs_tangent(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Return the value and its tangent. The tangent is a matrix product, so that its transpose (reverse mode) is one too."""
    (rows, weight, bias), (d_rows, d_weight, d_bias) = primals, tangents

    def given(tangent: Any) -> bool:
        return not isinstance(tangent, SymbolicZero)

    def full(tangent: Any) -> Array:
        return tangent if given(tangent) else jnp.zeros(tangent.shape, tangent.dtype)

    value = few_inputs(rows, weight, bias)
    total = jnp.zeros_like(value)
    if given(d_weight) or given(d_bias):  # one product for both, so that the reverse mode sums over the rows only once
        ones = jnp.concatenate((rows.T, jnp.ones((1, len(rows)), rows.dtype)))
        total = jnp.einsum("kn,km->nm", ones, jnp.concatenate((full(d_weight), full(d_bias)[None])))
    if given(d_rows):
        total = total + d_rows @ weight
    return value, total


few_inputs.defjvp(_few_inputs_tangent, symbolic_zeros=True)


@dataclasses.dataclass(frozen=True)
class LinearFeatures:
    """ξᵀψ(s), the mean in the paper's §2.3. Starts at ξ = 0."""

    psi: Callable[[Array], Array]
    feature_dim: int
    output_dim: int

    def init(self, key: Array) -> Tree:
        return jnp.zeros((self.feature_dim, self.output_dim))

    def apply(self, params: Tree, observation: Array) -> Array:
        output: Array = self.psi(observation) @ params
        return output


@dataclasses.dataclass(frozen=True)
class LookupTable:
    """One row of outputs for each integer observation. All outputs start at 0."""

    rows: int
    columns: int

    def init(self, key: Array) -> Tree:
        return jnp.zeros((self.rows, self.columns))

    def apply(self, params: Tree, observation: Array) -> Array:
        row: Array = params[observation]
        return row


class Pair(NamedTuple):
    """A user's (init, apply) pair as a network."""

    init: Callable[[Array], Tree]
    apply: Callable[[Tree, Array], Array]


def network(thing: Any) -> Network:
    """Return a network from a network, an (init, apply) pair, an Equinox module or a function key -> module."""
    if hasattr(thing, "init") and hasattr(thing, "apply"):
        return cast(Network, thing)
    if isinstance(thing, tuple) and len(thing) == 2 and all(callable(part) for part in thing):
        return Pair(*thing)
    if callable(thing):
        return _equinox(thing)
    raise InputError(
        f"cannot make a network from {type(thing).__name__}: give an (init, apply) pair, an Equinox module, "
        "or a function from a key to an Equinox module."
    )


def on_rows(network: Network, params: Tree, observations: Array) -> Array:
    """Return the outputs of a network for many observations, [n, ...]."""
    apply_rows = own_method(network, "apply_rows") or jax.vmap(network.apply, (None, 0))
    outputs: Array = apply_rows(params, observations)
    return outputs


def _equinox(thing: Callable[..., Any]) -> Network:
    """Return a network from an Equinox module or a function key -> module.

    A module starts every seed at the module's weights; a function draws new weights for each seed.
    """
    import equinox

    build = (lambda key: thing) if isinstance(thing, equinox.Module) else thing
    shapes = equinox.filter_eval_shape(build, jax.random.key(0))
    if not isinstance(shapes, equinox.Module):
        raise InputError(
            f"{thing} returned {type(shapes).__name__}; expected a function that returns an Equinox module for a key."
        )
    rest = equinox.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]
    return Pair(
        init=lambda key: equinox.filter(build(key), equinox.is_array),
        apply=lambda params, observation: equinox.combine(params, rest)(observation),
    )
