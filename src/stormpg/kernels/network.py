"""The parts of the kernels: a policy's network, written by hand, and its head, traced from the policy's own functions."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.kernels.scalar_code import on_lanes
from stormpg.pytrees import Tree


class Given(NamedTuple):
    """A network whose output is its parameter, so that a policy's functions can be traced without its network."""

    def init(self, key: Array) -> Tree:
        raise AssertionError("Given has no parameters of its own")

    def apply(self, params: Tree, observation: Array) -> Array:
        output: Array = params
        return output


class Head(NamedTuple):
    """A policy without its network: functions of the numbers in (settings, other parameters, output, noise or action)."""

    act: Callable[[Any], Callable[..., list[Array]]]  # takes the shape of the noise, returns the function
    log_prob: Callable[..., list[Array]]
    slope: Callable[..., list[Array]]  # derivatives of log_prob with respect to the other parameters and the output


class Weights(NamedTuple):
    """The network's weights, with the width padded to a power of two."""

    into: Array  # [inputs, width]
    bias: Array  # [width]
    out: Array  # [outputs, width]
    out_bias: Array  # [outputs]


def split(policy: Any, params: Tree) -> tuple[str, Any, Tree]:
    """Return the name of the network's parameters, these parameters, and all other parameters."""
    name = "mean" if hasattr(policy, "mean") else "logits"
    return name, params[name], {key: value for key, value in params.items() if key != name}


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def weights(layers: Any) -> Weights:
    """Return the weights of a network of two layers, padded for the kernels."""
    first, last = layers
    missing = power_of_two(first["bias"].shape[0]) - first["bias"].shape[0]

    def pad(x: Array) -> Array:
        return jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, missing),))

    return Weights(pad(first["weight"]), pad(first["bias"]), pad(last["weight"].T), last["bias"])


def scalars(tree: Tree) -> Array:
    """Return all numbers of a tree as a vector, followed by a 0, because a kernel cannot take an empty array: [count + 1]."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)] + [jnp.zeros(1)])


def head(policy: Any, params: Tree, outputs: int, action: Any) -> Head:
    """Return the policy's functions without its network. `action`: the shape of its action."""
    name, _, others = split(policy, params)
    bare = dataclasses.replace(policy, **{name: Given()})
    like = functools.partial(jax.tree.map, lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)))
    output = jax.ShapeDtypeStruct((outputs,), jnp.float32)

    def log_prob(policy: Any, others: Tree, output: Array, action: Array) -> Array:
        value: Array = policy.log_prob({**others, name: output}, None, action)
        return value

    def act(policy: Any, others: Tree, output: Array, noise: Array) -> Array:
        action: Array = policy.act({**others, name: output}, None, noise)
        return action

    shapes = (like(bare), like(others), output)
    return Head(
        lambda draw: on_lanes(act, *shapes, draw),
        on_lanes(log_prob, *shapes, action),
        on_lanes(jax.grad(log_prob, argnums=(1, 2)), *shapes, action),
    )


def tanh(x: Array) -> Array:
    """tanh by two fast operations instead of a library call. The absolute error is 1e-7, also for a small x."""
    e = jnp.exp2((2.0 / math.log(2.0)) * x) + 1.0
    root = jax.lax.rsqrt(e)  # cheaper than a division
    return 1.0 - 2.0 * root * root


class Loaded(NamedTuple):
    """The network in registers: each row has shape [1, width]."""

    into: list[Array]
    bias: Array
    out: list[Array]
    out_bias: list[Array]


def load_weights(refs: Any) -> Loaded:
    """Load the network from GPU memory into registers."""
    w = Weights(*refs)

    def row(ref: Any, i: int) -> Array:
        loaded: Array = ref[i, :][None, :]
        return loaded

    return Loaded(
        [row(w.into, i) for i in range(w.into.shape[0])],
        w.bias[:][None, :],
        [row(w.out, o) for o in range(w.out.shape[0])],
        [w.out_bias[o] for o in range(w.out.shape[0])],
    )


def hidden(w: Loaded, inputs: list[Array]) -> Array:
    """Return the values of the hidden layer: [lanes, width]."""
    total = jnp.broadcast_to(w.bias, (inputs[0].shape[0], w.bias.shape[1]))
    for x, weight in zip(inputs, w.into, strict=True):
        total = total + x[:, None] * weight
    return tanh(total)


def output(w: Loaded, h: Array) -> list[Array]:
    """Return the outputs of the network for the hidden values h, each [lanes]."""
    return [(h * weight).sum(axis=1) + bias for weight, bias in zip(w.out, w.out_bias, strict=True)]


def read(ref: Any, lanes: int) -> list[Array]:
    """Read the numbers that `scalars` wrote, each repeated for every lane."""
    return [jnp.broadcast_to(ref[i], (lanes,)) for i in range(ref.shape[0] - 1)]
