"""What the kernels are made of: a policy's network, written out, and its head, traced from the policy's own functions."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.kernels.scalar_code import on_lanes
from stormpg.records import Tree


class Given(NamedTuple):
    """A network whose output is its parameter, so that what a policy does with the output can be traced by itself."""

    def init(self, key: Array) -> Tree:
        raise AssertionError("it has no parameters of its own")

    def apply(self, params: Tree, observation: Array) -> Array:
        return params


class Head(NamedTuple):
    """A policy without its network: functions of (settings, other parameters, output, noise or action), all numbers."""

    act: Callable[[Any], Callable[..., list[Array]]]  # for noise of this shape
    log_prob: Callable[..., list[Array]]
    slope: Callable[..., list[Array]]  # of log_prob, to the other parameters and the output


class Weights(NamedTuple):
    """The network, its width filled up to a power of two."""

    into: Array  # [inputs, width]
    bias: Array  # [width]
    out: Array  # [outputs, width]
    out_bias: Array  # [outputs]


def split(policy: Any, params: Tree) -> tuple[str, Any, Tree]:
    """The name of the network's parameters, those, and the others."""
    name = "mean" if hasattr(policy, "mean") else "logits"
    return name, params[name], {key: value for key, value in params.items() if key != name}


def power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def weights(layers: Any) -> Weights:
    first, last = layers
    missing = power_of_two(first["bias"].shape[0]) - first["bias"].shape[0]
    pad = lambda x: jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, missing),))
    return Weights(pad(first["weight"]), pad(first["bias"]), pad(last["weight"].T), last["bias"])


def scalars(tree: Tree) -> Array:
    """All numbers of a tree, one after the other: [count]; a kernel cannot take an empty array, so there is a last 0."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)] + [jnp.zeros(1)])


def head(policy: Any, params: Tree, outputs: int, action: Any) -> Head:
    """The policy's own functions. `action`: the shape of its action."""
    name, _, others = split(policy, params)
    bare = dataclasses.replace(policy, **{name: Given()})
    like = functools.partial(jax.tree.map, lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)))
    output = jax.ShapeDtypeStruct((outputs,), jnp.float32)

    def log_prob(policy: Any, others: Tree, output: Array, action: Array) -> Array:
        return policy.log_prob({**others, name: output}, None, action)

    def act(policy: Any, others: Tree, output: Array, noise: Array) -> Array:
        return policy.act({**others, name: output}, None, noise)

    shapes = (like(bare), like(others), output)
    return Head(
        lambda draw: on_lanes(act, *shapes, draw),
        on_lanes(log_prob, *shapes, action),
        on_lanes(jax.grad(log_prob, argnums=(1, 2)), *shapes, action),
    )


def tanh(x: Array) -> Array:
    """Two fast operations instead of a library call; its error is 1e-7, not a few units of the last place of a small x."""
    e = jnp.exp2((2.0 / math.log(2.0)) * x) + 1.0
    root = jax.lax.rsqrt(e)  # cheaper than a division
    return 1.0 - 2.0 * root * root


class Loaded(NamedTuple):
    """The network in registers: rows of the width, as [1, width]."""

    into: list[Array]
    bias: Array
    out: list[Array]
    out_bias: list[Array]


def load_weights(refs: Any) -> Loaded:
    w = Weights(*refs)
    row = lambda ref, i: ref[i, :][None, :]
    return Loaded(
        [row(w.into, i) for i in range(w.into.shape[0])],
        w.bias[:][None, :],
        [row(w.out, o) for o in range(w.out.shape[0])],
        [w.out_bias[o] for o in range(w.out.shape[0])],
    )


def hidden(w: Loaded, inputs: list[Array]) -> Array:
    """The hidden layer for some lanes: [lanes, width]."""
    total = jnp.broadcast_to(w.bias, (inputs[0].shape[0], w.bias.shape[1]))
    for x, weight in zip(inputs, w.into, strict=True):
        total = total + x[:, None] * weight
    return tanh(total)


def output(w: Loaded, h: Array) -> list[Array]:
    return [(h * weight).sum(axis=1) + bias for weight, bias in zip(w.out, w.out_bias, strict=True)]


def read(ref: Any, lanes: int) -> list[Array]:
    """The numbers of `scalars` again, one for every lane."""
    return [jnp.broadcast_to(ref[i], (lanes,)) for i in range(ref.shape[0] - 1)]
