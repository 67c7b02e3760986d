"""The kernels of a network on the time steps of a batch, for a CPU, in C (`rows.c`). See `rows`."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.kernels import keeping
from stormpg.kernels.cpu import LANES, PRELUDE, call, number, padded, text
from stormpg.kernels.network import unpacked, weights
from stormpg.pytrees import Tree


@functools.cache
def source(inputs: int, units: int, outputs: int) -> str:
    """The C for a network of these sizes."""
    sizes = {"LANES": LANES, "INPUTS": inputs, "UNITS": units, "OUTPUTS": outputs}
    defined = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
    return "\n".join((PRELUDE, text("version.h"), defined, text("network.c"), text("rows.c")))


def sizes_of(layers: Tree) -> tuple[int, int, int]:
    """The numbers of inputs, of hidden units in whole vectors, and of outputs."""
    inputs, width = layers[0]["weight"].shape
    return inputs, padded(width), layers[1]["bias"].shape[0]


def net(layers: Tree) -> tuple[Array, ...]:
    """The weights of a network, or their tangents, as the kernels read them."""
    return tuple(weights(layers, padded(layers[0]["bias"].shape[0])))


def outputs(layers: Tree, observation: Array, length: Array, keep: bool = False) -> tuple[Array, Array | None]:
    """The outputs of the network with these weights, [n, H, outputs], and its activations, if they are kept."""
    n, horizon, _ = observation.shape
    inputs, units, size = sizes_of(layers)
    width = units + padded(size)
    shapes = [number(n, horizon, size)]
    if keep and n * horizon * width <= keeping.MOST:
        shapes.append(number(n, horizon, width))
    made, *kept = call(source(inputs, units, size), "outputs_of_rows", shapes, *net(layers), observation, length)
    return made, kept[0] if kept else None


def tangents(layers: Tree, direction: Tree, observation: Array, length: Array, kept: Array | None = None) -> Array:
    """The derivatives of the outputs in a direction of the weights, [n, H, outputs]. `kept`: the activations."""
    sizes = sizes_of(layers)
    given = *net(layers), observation, length, *net(direction), *([] if kept is None else [kept])
    made: Array = call(source(*sizes), "tangents_of_rows", number(*observation.shape[:2], sizes[-1]), *given)
    return made


def pull_back(
    layers: Tree, observation: Array, length: Array, slopes: Array, parts: int, kept: Array | None = None
) -> Tree:  # fmt: skip
    """Sums of slopes by the weights from those by the outputs, [c, n, H, outputs]: leaves [c, parts, ...]."""
    inputs, units, size = sizes_of(layers)
    shapes = number(len(slopes), parts, inputs + 1 + size, units), number(len(slopes), parts, size)
    given = *net(layers), observation, length, slopes, *([] if kept is None else [kept])
    wide, narrow = call(source(inputs, units, size), "pull_back_of_rows", shapes, *given)
    made: Tree = jax.vmap(jax.vmap(functools.partial(unpacked, layers)))(wide, narrow)
    return made


def pull_back_tangents(layers: Tree, direction: Tree, observation: Array, length: Array, slopes: Array, parts: int) -> Tree:
    """The derivatives of `pull_back` in a direction of the weights."""
    inputs, units, size = sizes_of(layers)
    shape = number(len(slopes), parts, inputs + 1 + size, units)
    given = *net(layers), observation, length, slopes, *net(direction)
    wide = call(source(inputs, units, size), "pull_back_tangents_of_rows", shape, *given)
    none = jnp.zeros((len(slopes), parts, size))
    made: Tree = jax.vmap(jax.vmap(functools.partial(unpacked, layers)))(wide, none)
    return made
