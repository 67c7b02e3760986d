"""The kernels of a network on the time steps of a batch, for a GPU, in Pallas for Triton. See `rows`.

A program holds the weights in registers while the steps of its trajectories pass by. No activations are kept: computing a
hidden layer again is faster than reading it from memory.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from stormpg.kernels.network import power_of_two, unpacked, weights
from stormpg.kernels.network_gpu import (
    Ref,
    add_slopes,
    call,
    first_layer,
    hidden,
    load_weights,
    multiply_add,
    output,
    pulled,
    slope_of,
    weights_on_a_gpu,
)
from stormpg.pytrees import Tree
from stormpg.trajectories import over_runs

TILE = 4  # the number of steps of a trajectory that a program computes at once
PROGRAMS = 8192  # this many programs fill a GPU; larger batches give each program several trajectories


class Steps:
    """A tile of steps of one trajectory, in a kernel."""

    def __init__(self, row: Array, number: Array, horizon: int) -> None:
        self.row, self.times = row, number * TILE + jnp.arange(TILE)
        self.inside = None if horizon % TILE == 0 else self.times < horizon

    def load(self, ref: Ref, *before: Any) -> list[Array]:
        """The numbers of each step of an array [..., n, H, numbers]."""
        other = None if self.inside is None else 0
        at = [ref.at[(*before, self.row, self.times, i)] for i in range(ref.shape[-1])]
        return [triton.load(place, mask=self.inside, other=other) for place in at]

    def store(self, ref: Ref, values: list[Array]) -> None:
        for i, value in enumerate(values):
            triton.store(ref.at[self.row, self.times, i], value, mask=self.inside)


def of_every_step(made: Any, operands: Any, observation: Array, length: Array, outputs: int) -> Array:
    """An array [n, H, outputs], 0 on padded steps. `made(operands)` returns a function of the observations of a tile."""
    n, horizon, _ = observation.shape

    def kernel(given: Any, seen: Ref, lengths: Ref, result: Ref) -> None:
        row, of_steps = pl.program_id(0), made(given)

        def computed(number: Array, carry: int) -> int:
            steps = Steps(row, number, horizon)
            live = steps.times < lengths[row]
            steps.store(result, [jnp.where(live, value, 0.0) for value in of_steps(steps.load(seen))])
            return carry

        def cleared(number: Array, carry: int) -> int:
            Steps(row, number, horizon).store(result, [jnp.zeros((TILE,))] * outputs)
            return carry

        full = -(-lengths[row] // TILE)
        jax.lax.fori_loop(0, full, computed, 0)
        jax.lax.fori_loop(full, -(-horizon // TILE), cleared, 0)

    shape = jax.ShapeDtypeStruct((n, horizon, outputs), jnp.float32)
    result: Array = call(kernel, n, shape, operands, observation, length)
    return result


def outputs(layers: Tree, observation: Array, length: Array, keep: bool = False) -> tuple[Array, None]:
    """The outputs of the network, [n, H, outputs]."""

    def made(given: Any) -> Any:
        w = load_weights(given)
        return lambda seen: output(w, hidden(w, seen))

    return of_every_step(made, weights_on_a_gpu(layers), observation, length, len(layers[-1]["bias"])), None


def tangents(layers: Tree, direction: Tree, observation: Array, length: Array, kept: None = None) -> Array:
    """The derivatives of the outputs in a direction of the weights, [n, H, outputs]."""
    packed = weights_on_a_gpu(layers)

    def made(given: Any) -> Any:
        w, d = (load_weights(one) for one in given)

        def slopes(seen: list[Array]) -> list[Array]:
            h = hidden(w, seen)
            moved = first_layer(seen, d.into, d.bias) * slope_of(h)
            last = zip(w.out, d.out, d.out_bias, strict=True)
            return [multiply_add(moved, out, h * d_out).sum(axis=0) + bias for out, d_out, bias in last]

        return slopes

    given = packed, weights(direction, packed.bias.shape[0])
    return of_every_step(made, given, observation, length, len(packed.out_bias))


def pull_back(
    layers: Tree, observation: Array, length: Array, slopes: Array, parts: int, kept: None = None
) -> Tree:  # fmt: skip
    """Sums of slopes by the weights from those by the outputs, [c, n, H, outputs]: leaves [c, parts, ...]."""

    def added(given: Any) -> Any:
        w = load_weights(given)

        def add(sums: list[Array], seen: list[Array], pull: list[Array]) -> list[Array]:
            h = hidden(w, seen)
            return add_slopes(sums, seen, pulled(pull, w.out) * slope_of(h), pull, h)

        return add

    wide = sums_over_steps(added, weights_on_a_gpu(layers), layers, observation, length, slopes, parts)
    narrow = slopes.reshape(len(slopes), parts, -1, slopes.shape[-1]).sum(axis=2)
    made: Tree = jax.vmap(jax.vmap(functools.partial(unpacked, layers)))(wide, narrow)
    return made


def pull_back_tangents(layers: Tree, direction: Tree, observation: Array, length: Array, slopes: Array, parts: int) -> Tree:
    """The derivatives of `pull_back` in a direction of the weights."""
    packed = weights_on_a_gpu(layers)

    def added(given: Any) -> Any:
        w, d = (load_weights(one) for one in given)

        def add(sums: list[Array], seen: list[Array], pull: list[Array]) -> list[Array]:
            h = hidden(w, seen)
            slope = slope_of(h)
            moved = first_layer(seen, d.into, d.bias) * slope  # of the hidden layer
            back = pulled(pull, d.out) * slope - 2.0 * pulled(pull, w.out) * h * moved
            return add_slopes(sums, seen, back, pull, moved)

        return add

    given = packed, weights(direction, packed.bias.shape[0])
    wide = sums_over_steps(added, given, layers, observation, length, slopes, parts)
    none = jnp.zeros((len(slopes), parts, slopes.shape[-1]))
    made: Tree = jax.vmap(jax.vmap(functools.partial(unpacked, layers)))(wide, none)
    return made


def sums_over_steps(
    added: Any, operands: Any, layers: Tree, observation: Array, length: Array, slopes: Array, parts: int
) -> Array:  # fmt: skip
    """Sums of vectors of units over the steps of each part, [c, parts, inputs + 1 + outputs, width].

    `added(operands)` is a function of sums, observations and slopes of a tile of steps that returns the next sums.
    """
    sets, n, horizon, outputs = slopes.shape
    inputs, width = observation.shape[-1], power_of_two(layers[0]["bias"].shape[0])
    size = n // parts
    group = max(1, min(size, sets * n * over_runs(1) // PROGRAMS))  # trajectories per program
    pieces = -(-size // group)  # programs per part
    rows = inputs + 1 + outputs  # input weights, bias, output weights

    def kernel(given: Any, seen: Ref, lengths: Ref, pulls: Ref, wide: Ref) -> None:
        program, add = pl.program_id(0), added(given)
        chosen, part, piece = program // (parts * pieces), program // pieces % parts, program % pieces

        def add_steps(row: Array, number: Array, sums: list[Array]) -> list[Array]:
            steps = Steps(row, number, horizon)
            new: list[Array] = add(sums, steps.load(seen), steps.load(pulls, chosen))
            return new

        def add_trajectory(row: Array, sums: list[Array]) -> list[Array]:
            tiles = -(-lengths[row] // TILE)
            new: list[Array] = jax.lax.fori_loop(0, tiles, functools.partial(add_steps, row), sums)
            return new

        first = part * size + piece * group
        last = jnp.minimum(first + group, (part + 1) * size)
        sums = jax.lax.fori_loop(first, last, add_trajectory, [jnp.zeros((width, TILE))] * rows)
        for i, total in enumerate(sums):
            wide[program, i, :] = total.sum(axis=1)

    shape = jax.ShapeDtypeStruct((sets * parts * pieces, rows, width), jnp.float32)
    made: Array = call(kernel, sets * parts * pieces, shape, operands, observation, length, slopes)
    return made.reshape(sets, parts, pieces, rows, width).sum(axis=2)
