"""The parts of the kernels: a policy's network, written by hand; its head, traced from the policy's own functions; a batch."""

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
from stormpg.trajectories import Trajectories

SCALE = 2.0 / math.log(2.0)  # tanh(x) = 1 - 2 / (2^(SCALE x) + 1), and a GPU computes powers of 2


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
    """The network's weights, with the hidden layer padded to a width that suits the kernels."""

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


def weights(layers: Any, width: int, scale: float = 1.0) -> Weights:
    """Return the weights of a network of two layers, padded to this width. `scale`: a factor of the first layer."""
    first, last = layers
    missing = width - first["bias"].shape[0]

    def pad(x: Array) -> Array:
        return jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, missing),))

    into, bias = (x if scale == 1.0 else scale * x for x in (pad(first["weight"]), pad(first["bias"])))
    return Weights(into, bias, pad(last["weight"].T), last["bias"])


def weights_on_a_gpu(layers: Any) -> Weights:
    """Return the weights with a power of two of hidden units, and the first layer scaled for `scaled_tanh`."""
    return weights(layers, power_of_two(layers[0]["bias"].shape[0]), SCALE)


def unpacked(layers: Any, wide: Array, narrow: Array) -> Tree:
    """Return the gradient of the network from sums of `weight_slopes`, [inputs + 1 + outputs, width], and of output biases."""
    inputs, width = layers[0]["weight"].shape
    wide = wide[:, :width]
    return [{"weight": wide[:inputs], "bias": wide[inputs]}, {"weight": wide[inputs + 1 :].T, "bias": narrow}]


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


def scaled_tanh(x: Array) -> Array:
    """tanh(x / SCALE) by two fast operations instead of a library call. The absolute error is 1e-7, also for a small x."""
    root = jax.lax.rsqrt(jnp.exp2(x) + 1.0)  # cheaper than a division
    return 1.0 - 2.0 * root * root


class Loaded(NamedTuple):
    """The network in registers: each vector of units is a column, [width, 1], so that threads hold whole columns of lanes."""

    into: list[Array]
    bias: Array
    out: list[Array]
    out_bias: list[Array]


def load_weights(refs: Any) -> Loaded:
    """Load the network from GPU memory into registers."""
    w = Weights(*refs)
    return Loaded(
        [w.into[i, :][:, None] for i in range(w.into.shape[0])],
        w.bias[:][:, None],
        [w.out[o, :][:, None] for o in range(w.out.shape[0])],
        [w.out_bias[o] for o in range(w.out.shape[0])],
    )


def hidden(w: Loaded, inputs: list[Array]) -> Array:
    """Return the values of the hidden layer: [width, lanes]."""
    total = w.bias
    for x, weight in zip(inputs, w.into, strict=True):
        total = total + x[None, :] * weight
    return scaled_tanh(total)


def output(w: Loaded, h: Array) -> list[Array]:
    """Return the outputs of the network for the values h of the hidden layer, each [lanes]."""
    return [(h * weight).sum(axis=0) + bias for weight, bias in zip(w.out, w.out_bias, strict=True)]


def weight_slopes(w: Loaded, inputs: list[Array], h: Array, pull: list[Array]) -> list[Array]:
    """Return the derivatives with respect to the weights, given those with respect to the outputs, for each lane.

    They are those from each input, of the hidden layer's bias, and to each output: [width, lanes].
    """
    bias = sum(p[None, :] * weight for p, weight in zip(pull, w.out, strict=True)) * (1.0 - h * h)
    return [*(x[None, :] * bias for x in inputs), bias, *(p[None, :] * h for p in pull)]


def read(ref: Any, lanes: int) -> list[Array]:
    """Read the numbers that `scalars` wrote, each repeated for every lane."""
    return [jnp.broadcast_to(ref[i], (lanes,)) for i in range(ref.shape[0] - 1)]


class Batch(NamedTuple):
    """The parts of a batch that the kernels below read."""

    observation: Array  # [n, H, inputs]
    action: Array  # [n, H, actions]
    length: Array  # [n]


def read_batch(trajectories: Trajectories) -> Batch:
    """Return the flattened observations and actions of a batch, and the lengths of its episodes."""
    n, horizon = trajectories.mask.shape
    observation = jnp.reshape(trajectories.observation, (n, horizon, -1))
    action = jnp.reshape(trajectories.action, (n, horizon, -1))
    return Batch(observation, action, trajectories.mask.sum(axis=1).astype(jnp.int32))
