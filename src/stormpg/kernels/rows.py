"""Log-probabilities, sums of scores and divergences by kernels of the network alone, whatever the density of the policy.

Four kernels (`rows_cpu`, `rows_gpu`) take the time steps of a batch: the outputs of the network, the pull-back of slopes of the
outputs, and the tangents of both, so that all this can be differentiated in forward mode. The density stays in JAX; it is
cheap, because it takes a few numbers for each step instead of a hidden layer. On a CPU, `cpu` translates whole policies to C
where it can, which is faster still.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.kernels.network import Given, check_floats, read_batch, split, without_normalisation
from stormpg.machine.xla import platform
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import Tree, add
from stormpg.trajectories import Trajectories


class Kept(NamedTuple):
    """What a forward pass leaves for the backward pass over the same steps."""

    outputs: Array  # of the network, [n, H, outputs]
    activations: Array | None  # of the hidden layer, in the form of the kernels of this platform


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

    def everywhere(self) -> Tree:
        """The other parameters, repeated for each step."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*self.mask.shape, *x.shape)), self.others)

    def inner(self, tree: Tree) -> Tree:
        """The part of a tree like the parameters that belongs to the policy without its normalisation."""
        return tree["policy"] if type(self.policy) is Normalised else tree

    def outer(self, layers: Tree, others: Tree) -> Tree:
        """A tree like the parameters, with 0 for statistics of observations. Leaves may have more leading axes."""
        made = {**others, self.name: layers}
        if type(self.policy) is not Normalised:
            return made
        axes = jnp.shape(jax.tree.leaves(layers)[0])[: -jnp.ndim(jax.tree.leaves(self.layers)[0])]
        return {"policy": made, "seen": jax.tree.map(lambda x: jnp.zeros((*axes, *x.shape), x.dtype), self.params["seen"])}

    def outputs(self, layers: Tree | None = None, keep: bool = False) -> Kept:
        """The outputs of the network with these weights, or with its own, 0 on padded steps. `keep`: a pull-back follows."""
        return _outputs(keep, self.layers if layers is None else layers, self.observation, self.length)

    def tangents(self, direction: Tree, kept: Kept) -> Array:
        """The derivatives of the outputs in a direction of the network's parameters, [n, H, outputs]."""
        made: Array = network_kernels().tangents(self.layers, direction, self.observation, self.length, kept.activations)
        return made

    def pull_back(self, slopes: Array, parts: int, kept: Kept) -> Tree:
        """Sums of the slopes of a function with respect to the network's parameters, from those with respect to its outputs.

        slopes: [c, n, H, outputs], 0 on padded steps. The leaves of the result are [c, parts, ...], for each of `parts` equal
        parts of the batch.
        """
        return _pull_back(parts, self.layers, slopes, self.observation, self.length, kept.activations)


def rows_of(policy: Any, params: Tree, taken: Trajectories) -> Rows:
    """A policy whose network fits, on the steps of a batch."""
    check_floats(taken.observation)
    batch = read_batch(taken)
    observation = batch.observation
    if type(policy) is Normalised:
        observation = policy.scale(params, observation)
    inner, own = without_normalisation(policy, params)
    name, layers, others = split(inner, own)
    head = dataclasses.replace(inner, **{name: Given()})
    return Rows(policy, params, head, name, others, layers, observation, batch.length, taken.mask)


def network_kernels() -> Any:
    """The module of the kernels of this platform: `outputs`, `tangents`, `pull_back` and `pull_back_tangents`."""
    return importlib.import_module(f"stormpg.kernels.rows_{'cpu' if platform() == 'cpu' else 'gpu'}")


# In forward mode, with derivatives by the weights and the slopes. Nothing differentiates by observations or activations.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _outputs(keep: bool, layers: Tree, observation: Array, length: Array) -> Kept:
    return Kept(*network_kernels().outputs(layers, observation, length, keep))


@_outputs.defjvp
def _of_outputs(keep: bool, primals: Any, tangents: Any) -> tuple[Kept, Kept]:
    layers, observation, length = primals
    made = _outputs(keep, layers, observation, length)
    moved = network_kernels().tangents(layers, tangents[0], observation, length, made.activations)
    return made, Kept(moved, jax.tree.map(jnp.zeros_like, made.activations))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pull_back(parts: int, layers: Tree, slopes: Array, observation: Array, length: Array, activations: Array | None) -> Tree:
    return network_kernels().pull_back(layers, observation, length, slopes, parts, activations)


@_pull_back.defjvp
def _of_pull_back(parts: int, primals: Any, tangents: Any) -> tuple[Tree, Tree]:
    layers, slopes, *given = primals
    by_layers = network_kernels().pull_back_tangents(layers, tangents[0], *given[:2], slopes, parts)
    return _pull_back(parts, layers, slopes, *given), add(by_layers, _pull_back(parts, layers, tangents[1], *given))


def log_densities(rows: Rows, output: Array, others: Tree, action: Array) -> Array:
    """The log-density of each action under the outputs of the network, [n, H], 0 on padded steps.

    `others`: the other parameters for each step, so that their slopes are those of each step.
    """

    def one(output: Array, others: Tree, action: Array) -> Array:
        value: Array = rows.head.log_prob(rows.head_params(output, others), None, action)
        return value

    return jnp.where(rows.mask > 0, jax.vmap(jax.vmap(one))(output, others, action), 0.0)


def log_probs(policy: Any, params: Tree, trajectories: Trajectories, *, keep: bool = False) -> tuple[Array, Kept | None]:
    """Return log π_ξ(a_h|s_h), [n, H], 0 on padded steps, and what `score_sum` needs again."""
    rows = rows_of(policy, params, trajectories)
    kept = rows.outputs(keep=keep)
    return log_densities(rows, kept.outputs, rows.everywhere(), trajectories.action), kept if keep else None


def score_sums(
    policy: Any, params: Tree, trajectories: Trajectories, coefficients: Array, kept: Kept | None = None, *, parts: int
) -> tuple[Tree, None]:
    """Return Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for c sets of coefficients, [c, n, H], over each of `parts` parts of the batch."""
    rows = rows_of(policy, params, trajectories)
    kept = rows.outputs(keep=True) if kept is None else kept
    c = coefficients.reshape(len(coefficients), parts, -1, coefficients.shape[-1])  # fails if the parts are not equal

    def total(output: Array, others: Tree) -> Array:
        return log_densities(rows, output, others, trajectories.action).sum()

    of_output, of_others = jax.grad(total, argnums=(0, 1))(kept.outputs, rows.everywhere())
    layers = rows.pull_back(coefficients[..., None] * of_output, parts, kept)
    slopes = functools.partial(jnp.einsum, "cpih,pih...->cp...", precision="highest")  # a GPU would round the factors
    others = jax.tree.map(lambda x: slopes(c, x.reshape(*c.shape[1:], *x.shape[2:])), of_others)
    return rows.outer(layers, others), None


def score_sum(
    policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array, kept: Kept | None = None
) -> tuple[Tree, None]:
    """Return Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]."""
    sums = score_sums(policy, params, trajectories, coefficient[None], kept, parts=1)[0]
    return jax.tree.map(lambda x: x[0, 0], sums), None


def divergence(
    policy: Any, params: Tree, taken: Trajectories
) -> tuple[Callable[[Tree], Array], Callable[[], Callable[[Tree], Tree]]]:
    """Return the mean of KL(π_{ξ_t} ‖ π_ξ) over the steps of a batch, and what makes products with its Hessian at ξ_t, F.

    `params` is ξ_t. There the slope of the divergence with respect to the outputs is 0 at every step, so its Hessian is JᵀWJ,
    with J the derivatives of the outputs by ξ, and W the Hessian by the outputs: the network is differentiated once.
    """
    rows = rows_of(policy, params, taken)
    kept, steps = rows.outputs(keep=True), rows.mask.sum()

    def total(output: Array, others: Tree) -> Array:
        def one(ours: Array, theirs: Array) -> Array:
            value: Array = rows.head.kl(rows.head_params(ours), rows.head_params(theirs, others), None)
            return value

        return jnp.where(rows.mask > 0, jax.vmap(jax.vmap(one))(kept.outputs, output), 0.0).sum() / steps

    def value(candidate: Tree) -> Array:
        _, layers, others = split(rows.head, rows.inner(candidate))
        return total(rows.outputs(layers).outputs, others)

    def fisher() -> Callable[[Tree], Tree]:
        curvature = jax.linearize(jax.grad(total, argnums=(0, 1)), kept.outputs, rows.others)[1]

        def product(v: Tree) -> Tree:
            _, layers, others = split(rows.head, rows.inner(v))
            of_output, of_others = curvature(rows.tangents(layers, kept), others)
            pulled = rows.pull_back(of_output[None], 1, kept)
            return rows.outer(jax.tree.map(lambda x: x[0, 0], pulled), of_others)

        return product

    return value, fisher
