"""What all kernels share: the weights of a network as arrays, a policy's head, traced from its own functions, and a batch."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.kernels.scalar_code import Unfit, on_lanes
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import Tree
from stormpg.trajectories import Trajectories


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
    log_prob: Callable[[], Callable[..., list[Array]]]
    slope: Callable[[], Callable[..., list[Array]]]  # the derivatives of log_prob by the other parameters and the output


class Weights(NamedTuple):
    """The network's weights, with the hidden layer padded to a width that suits the kernels."""

    into: Array  # [inputs, width]
    bias: Array  # [width]
    out: Array  # [outputs, width]
    out_bias: Array  # [outputs]


def without_normalisation(policy: Any, params: Tree) -> tuple[Any, Tree]:
    """Return a policy without its normalisation, and its parameters; any other policy as it is."""
    return (policy.policy, params["policy"]) if type(policy) is Normalised else (policy, params)


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


def unpacked(layers: Any, wide: Array, narrow: Array) -> Tree:
    """Return the gradient of the network from sums of `add_slopes`, [inputs + 1 + outputs, width], and of output biases."""
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
        lambda: on_lanes(log_prob, *shapes, action),
        lambda: on_lanes(jax.grad(log_prob, argnums=(1, 2)), *shapes, action),
    )


def check_floats(observation: Array) -> None:
    """Raise Unfit if the network's inputs are not float32, which is how the kernels read them."""
    if observation.dtype != jnp.float32:
        raise Unfit(f"observations of type {observation.dtype}")


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
