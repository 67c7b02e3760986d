"""CPU kernels for the network of a policy on the time steps of a batch, whatever its density: in C, see `rows.c`.

`cpu` translates the whole policy to C. That needs a policy without normalised observations, and a density of simple operations.
Here the network alone is C: its outputs, their tangents, and the pull-back of slopes of the outputs. The density stays in JAX;
it is cheap, because it takes a few numbers for each step instead of a hidden layer. These kernels are also those of sums over
parts of a batch, and of divergences and Fisher matrices.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.kernels import activations
from stormpg.kernels.cpu import LANES, PRELUDE, call, check_floats, number, padded, text
from stormpg.kernels.network import Given, read_batch, split, unpacked, weights
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import Tree
from stormpg.trajectories import Trajectories

KEPT = 4 * activations.MOST  # numbers of a run: the activations that ten products with a Fisher matrix share


class Rows(NamedTuple):
    """A policy on the steps of a batch, as a network and a head: the policy with the network's output as its parameter."""

    policy: Any
    params: Tree
    head: Any
    name: str  # of the network's parameters
    others: Tree  # all other parameters
    layers: Tree
    observation: Array  # [n, H, inputs], as the network sees them
    length: Array  # [n]
    mask: Array  # [n, H]

    def head_params(self, output: Array, others: Tree | None = None) -> Tree:
        """The parameters of the head for an output of the network."""
        return {**(self.others if others is None else others), self.name: output}

    def inner(self, tree: Tree) -> Tree:
        """The part of a tree like the parameters that belongs to the policy without its normalisation."""
        return tree["policy"] if isinstance(self.policy, Normalised) else tree

    def outer(self, layers: Tree, others: Tree) -> Tree:
        """A tree like the parameters, with 0 for statistics of observations. Leaves may have more leading axes."""
        made = {**others, self.name: layers}
        if not isinstance(self.policy, Normalised):
            return made
        axes = jnp.shape(jax.tree.leaves(layers)[0])[: -jnp.ndim(jax.tree.leaves(self.layers)[0])]
        return {"policy": made, "seen": jax.tree.map(lambda x: jnp.zeros((*axes, *x.shape), x.dtype), self.params["seen"])}

    @property
    def source(self) -> str:
        """The C of the kernels for the sizes of this network."""
        inputs, width = self.layers[0]["weight"].shape
        return source(inputs, padded(width), self.layers[1]["bias"].shape[0])


def rows_of(policy: Any, params: Tree, taken: Trajectories) -> Rows:
    """A policy whose network fits, on the steps of a batch."""
    check_floats(taken.observation)
    batch, inner, own = read_batch(taken), policy, params
    observation = batch.observation
    if isinstance(policy, Normalised):
        inner, own = policy.policy, params["policy"]
        observation = policy.scale(params, observation)
    name, layers, others = split(inner, own)
    head = dataclasses.replace(inner, **{name: Given()})
    return Rows(policy, params, head, name, others, layers, observation, batch.length, taken.mask)


@functools.cache
def source(inputs: int, units: int, outputs: int) -> str:
    sizes = {"LANES": LANES, "INPUTS": inputs, "UNITS": units, "OUTPUTS": outputs}
    defined = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
    return "\n".join((PRELUDE, text("version.h"), defined, text("network.c"), text("rows.c")))


def net(layers: Tree) -> tuple[Array, ...]:
    """The weights of a network, or their tangents, as the kernels read them."""
    return tuple(weights(layers, padded(layers[0]["bias"].shape[0])))


def outputs(rows: Rows, layers: Tree, keep: bool = False) -> tuple[Array, Array | None]:
    """The outputs of the network with these weights, [n, H, outputs], 0 on padded steps, and its activations, if kept."""
    n, horizon = rows.mask.shape
    inputs, units, size = rows.observation.shape[-1], padded(layers[0]["bias"].shape[0]), layers[1]["bias"].shape[0]
    width = units + padded(size)
    shapes = [number(n, horizon, size)]
    if keep and n * horizon * width <= KEPT:
        shapes.append(number(n, horizon, width))
    made, *kept = call(source(inputs, units, size), "outputs_of_rows", shapes, *net(layers), rows.observation, rows.length)
    return made, kept[0] if kept else None


def tangents(rows: Rows, direction: Tree, kept: Array | None) -> Array:
    """The derivatives of the outputs in a direction of the network's parameters, [n, H, outputs]."""
    shape = number(*rows.mask.shape, rows.layers[1]["bias"].shape[0])
    more = [] if kept is None else [kept]
    given = *net(rows.layers), rows.observation, rows.length, *net(direction), *more
    made: Array = call(rows.source, "tangents_of_rows", shape, *given)
    return made


def pull_back(rows: Rows, slopes: Array, parts: int, kept: Array | None = None) -> Tree:
    """Sums of the slopes of a function with respect to the network's parameters, from those with respect to its outputs.

    slopes: [c, n, H, outputs]. The leaves of the result are [c, parts, ...], for each of `parts` equal parts of the batch.
    """
    inputs, width = rows.layers[0]["weight"].shape
    size = rows.layers[1]["bias"].shape[0]
    shapes = number(len(slopes), parts, inputs + 1 + size, padded(width)), number(len(slopes), parts, size)
    more = [] if kept is None else [kept]
    wide, narrow = call(
        rows.source, "pull_back_of_rows", shapes, *net(rows.layers), rows.observation, rows.length, slopes, *more
    )  # fmt: skip
    return jax.vmap(jax.vmap(lambda wide, narrow: unpacked(rows.layers, wide, narrow)))(wide, narrow)


def log_densities(rows: Rows, output: Array, others: Tree, action: Array) -> Array:
    """The log-density of each action under the outputs of the network, [n, H], 0 on padded steps."""

    def one(output: Array, action: Array) -> Array:
        value: Array = rows.head.log_prob(rows.head_params(output, others), None, action)
        return value

    return jnp.where(rows.mask > 0, jax.vmap(jax.vmap(one))(output, action), 0.0)


def log_probs(policy: Any, params: Tree, trajectories: Trajectories, *, keep: bool = False) -> tuple[Array, None]:
    """Return log π_ξ(a_h|s_h), [n, H], 0 on padded steps. No activations are kept."""
    rows = rows_of(policy, params, trajectories)
    return log_densities(rows, outputs(rows, rows.layers)[0], rows.others, trajectories.action), None


def score_sums(policy: Any, params: Tree, trajectories: Trajectories, coefficients: Array, parts: int) -> tuple[Tree, None]:
    """Return Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for c sets of coefficients, [c, n, H], over each of `parts` parts of the batch."""
    rows = rows_of(policy, params, trajectories)
    output, kept = outputs(rows, rows.layers, keep=True)
    c = coefficients.reshape(len(coefficients), parts, -1, coefficients.shape[-1])  # fails if the parts are not equal

    def total(output: Array, others: Tree) -> Array:
        """With the other parameters given for each step, so that their slopes are those of each step."""

        def one(output: Array, others: Tree, action: Array) -> Array:
            value: Array = rows.head.log_prob(rows.head_params(output, others), None, action)
            return value

        return jnp.where(rows.mask > 0, jax.vmap(jax.vmap(one))(output, others, trajectories.action), 0.0).sum()

    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (*rows.mask.shape, *x.shape)), rows.others)
    of_output, of_others = jax.grad(total, argnums=(0, 1))(output, everywhere)
    layers = pull_back(rows, coefficients[..., None] * of_output, parts, kept)
    others = jax.tree.map(lambda x: jnp.einsum("cpih,pih...->cp...", c, x.reshape(*c.shape[1:], *x.shape[2:])), of_others)
    return rows.outer(layers, others), None


def score_sum(
    policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array, kept: Array | None = None
) -> tuple[Tree, None]:
    """Return Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]."""
    sums = score_sums(policy, params, trajectories, coefficient[None], 1)[0]
    return jax.tree.map(lambda x: x[0, 0], sums), None


def divergence(
    policy: Any, params: Tree, taken: Trajectories
) -> tuple[Callable[[Tree], Array], Callable[[], Callable[[Tree], Tree]]]:
    """Return the mean of KL(π_{ξ_t} ‖ π_ξ) over the steps of a batch, and what makes products with its Hessian at ξ_t, F.

    `params` is ξ_t. There the slope of the divergence with respect to the outputs is 0 at every step, so its Hessian is JᵀWJ,
    with J the derivatives of the outputs by ξ, and W the Hessian by the outputs: the network is differentiated once.
    """
    rows = rows_of(policy, params, taken)
    here, kept = outputs(rows, rows.layers, keep=True)
    steps = rows.mask.sum()

    def total(output: Array, others: Tree) -> Array:
        def one(ours: Array, theirs: Array) -> Array:
            value: Array = rows.head.kl(rows.head_params(ours), rows.head_params(theirs, others), None)
            return value

        return jnp.where(rows.mask > 0, jax.vmap(jax.vmap(one))(here, output), 0.0).sum() / steps

    def value(candidate: Tree) -> Array:
        _, layers, others = split(rows.head, rows.inner(candidate))
        return total(outputs(rows, layers)[0], others)

    def fisher() -> Callable[[Tree], Tree]:
        curvature = jax.linearize(jax.grad(total, argnums=(0, 1)), here, rows.others)[1]

        def product(v: Tree) -> Tree:
            _, layers, others = split(rows.head, rows.inner(v))
            of_output, of_others = curvature(tangents(rows, layers, kept), others)
            pulled = pull_back(rows, of_output[None], 1, kept)
            return rows.outer(jax.tree.map(lambda x: x[0, 0], pulled), of_others)

        return product

    return value, fisher
