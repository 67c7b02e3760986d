"""Kernels for a GPU: a whole rollout, the log-probabilities of a batch, and its weighted sum of scores.

In plain JAX every step of a rollout is a launch of several kernels, and thousands of small ones wait for one another. Here
a trajectory's steps are a loop inside one kernel, which ends when its own episodes have ended. The environment and the
policy come from their own functions (`lanes`); only the network, one hidden layer of tanh units, is written out (`parts`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from stormpg.kernels.network import head, hidden, load_weights, output, power_of_two, read, scalars, split, weights
from stormpg.kernels.scalar_code import on_lanes
from stormpg.records import Tree
from stormpg.trajectories import over_runs

LANES = 32  # trajectories of one program of a rollout, at most
TILE = 4  # steps of a trajectory that a program takes at once
PROGRAMS = 8192  # with more than these a GPU is full, and each program had better do more


def step_on_lanes(step: Callable[..., Any], *shapes: Any) -> Callable[..., list[Array]]:
    """As `on_lanes`, and remembered: an environment's step is the longest of all functions to trace."""
    leaves, structure = jax.tree.flatten(shapes)
    return _remembered(step, structure, tuple(leaves))


@functools.lru_cache(maxsize=16)
def _remembered(step: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]) -> Callable[..., list[Array]]:
    return on_lanes(step, *jax.tree.unflatten(structure, leaves))


def call(kernel: Any, programs: int, out_shape: Any, interpret: bool, *operands: Any) -> Any:
    return pl.pallas_call(
        kernel,
        grid=(programs,),
        out_shape=out_shape,
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=1, num_stages=1),
    )(*operands)


def rollout(
    env: Any, policy: Any, params: Tree, start: tuple[Tree, Array], noise: Array, horizon: int, interpret: bool = False
) -> tuple[Array, Array, Array, Array, Array]:
    """Observations, actions, rewards, mask and log-probabilities of n trajectories from these starts: [n, H, ...]."""
    _, layers, others = split(policy, params)
    state, first = start
    n, width = first.shape
    lanes = min(power_of_two(n), LANES)
    one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    draw = jax.ShapeDtypeStruct(noise.shape[2:], noise.dtype)
    action = jax.eval_shape(policy.act, params, one(first), draw)
    own = head(policy, params, layers[-1]["bias"].shape[0], action)
    act = own.act(draw)
    key = jax.eval_shape(jax.random.key, 0)
    advance = step_on_lanes(env.step, key, jax.tree.map(one, state), action)
    fields = [jnp.reshape(x, (n, -1)) for x in jax.tree.leaves(state)]
    draws, moves = int(np.prod(draw.shape)), int(np.prod(action.shape))

    def kernel(w, settings, rest, noise, first, *refs):
        fields, (observations, actions, rewards, masks, logs) = refs[:-5], refs[-5:]
        w = load_weights(w)
        rows = pl.program_id(0) * lanes + jnp.arange(lanes)
        inside = rows < n
        load = lambda ref, *at: triton.load(ref.at[(rows, *at)], mask=inside, other=0)
        store = lambda ref, value, *at: triton.store(ref.at[(rows, *at)], value, mask=inside)
        fixed = [*read(settings, lanes), *read(rest, lanes)]

        def step(loop):
            time, state, seen, alive = loop
            out = output(w, hidden(w, seen))
            acted = act(*fixed, *out, *(load(noise, time, i) for i in range(draws)))
            (log_prob,) = own.log_prob(*fixed, *out, *acted)
            *ahead, reward, over = advance(*state, *acted)
            live = alive > 0
            for ref, numbers in ((observations, seen), (actions, acted)):
                for i, x in enumerate(numbers):
                    store(ref, x, time, i)
            store(rewards, jnp.where(live, reward, 0.0), time)
            store(masks, alive.astype(jnp.float32), time)
            store(logs, jnp.where(live, log_prob, 0.0), time)
            going = live & ~over
            kept = [jnp.where(going, new, old) for new, old in zip(ahead, [*state, *seen], strict=True)]
            return time + 1, kept[: len(state)], kept[len(state) :], going.astype(jnp.int32)

        state = [load(ref, i) for ref in fields for i in range(ref.shape[1])]
        seen = [load(first, i) for i in range(width)]
        begin = (jnp.int32(0), state, seen, inside.astype(jnp.int32))
        ended = jax.lax.while_loop(lambda loop: (loop[0] < horizon) & (loop[3].max() > 0), step, begin)[0]

        def clear(time, _):
            zero = lambda ref, *at: store(ref, jnp.zeros((lanes,), ref.dtype), time, *at)
            for ref in (observations, actions):
                for i in range(ref.shape[2]):
                    zero(ref, i)
            for ref in (rewards, masks, logs):
                zero(ref)
            return _

        jax.lax.fori_loop(ended, horizon, clear, 0)

    number = jax.ShapeDtypeStruct((n, horizon), jnp.float32)
    out_shape = (
        jax.ShapeDtypeStruct((n, horizon, width), first.dtype),
        jax.ShapeDtypeStruct((n, horizon, moves), action.dtype),
        number, number, number,
    )  # fmt: skip
    operands = (weights(layers), scalars(policy), scalars(others), noise.reshape(n, horizon, -1), first, *fields)
    seen, acted, *rest = call(kernel, -(-n // lanes), out_shape, interpret, *operands)
    return seen, acted.reshape(n, horizon, *action.shape), *rest


class Batch(NamedTuple):
    """What the kernels below read of a batch."""

    observation: Array  # [n, H, inputs]
    action: Array  # [n, H, actions]
    length: Array  # [n]


def read_batch(trajectories: Any) -> Batch:
    n, horizon = trajectories.mask.shape
    flat = lambda x: jnp.reshape(x, (n, horizon, -1))
    return Batch(
        flat(trajectories.observation), flat(trajectories.action), trajectories.mask.sum(axis=1).astype(jnp.int32)
    )  # fmt: skip


def log_probs(policy: Any, params: Tree, trajectories: Any, interpret: bool = False) -> Array:
    """log π_ξ(a_h|s_h), [n, H], 0 on padded steps."""
    _, layers, others = split(policy, params)
    n, horizon = trajectories.mask.shape
    action = jax.ShapeDtypeStruct(trajectories.action.shape[2:], trajectories.action.dtype)
    own = head(policy, params, layers[-1]["bias"].shape[0], action)

    def kernel(w, settings, rest, batch, values):
        w, batch = load_weights(w), Batch(*batch)
        row = pl.program_id(0)
        fixed = [*read(settings, TILE), *read(rest, TILE)]

        def tile(number, _):
            times = number * TILE + jnp.arange(TILE)
            load = lambda ref, i: triton.load(ref.at[row, times, i], mask=times < horizon, other=0)
            seen = [load(batch.observation, i) for i in range(batch.observation.shape[2])]
            acted = [load(batch.action, i) for i in range(batch.action.shape[2])]
            (value,) = own.log_prob(*fixed, *output(w, hidden(w, seen)), *acted)
            live = times < batch.length[row]
            triton.store(values.at[row, times], jnp.where(live, value, 0.0), mask=times < horizon)
            return _

        def clear(number, _):
            times = number * TILE + jnp.arange(TILE)
            triton.store(values.at[row, times], jnp.zeros((TILE,)), mask=times < horizon)
            return _

        full = -(-batch.length[row] // TILE)
        jax.lax.fori_loop(0, full, tile, 0)
        jax.lax.fori_loop(full, -(-horizon // TILE), clear, 0)

    operands = (weights(layers), scalars(policy), scalars(others), read_batch(trajectories))
    return call(kernel, n, jax.ShapeDtypeStruct((n, horizon), jnp.float32), interpret, *operands)


def score_sum(policy: Any, params: Tree, trajectories: Any, coefficient: Array, interpret: bool = False) -> Tree:
    """Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]."""
    name, layers, others = split(policy, params)
    n, horizon = trajectories.mask.shape
    action = jax.ShapeDtypeStruct(trajectories.action.shape[2:], trajectories.action.dtype)
    packed = weights(layers)
    inputs, size = packed.into.shape
    outputs = packed.out.shape[0]
    own = head(policy, params, outputs, action)
    loose = sum(int(np.prod(jnp.shape(leaf))) for leaf in jax.tree.leaves(others))  # parameters outside the network
    group = max(1, min(n, n * over_runs(1) // PROGRAMS))  # trajectories of a program
    programs = -(-n // group)

    def kernel(w, settings, rest, batch, coefficient, wide, narrow):
        w, batch = load_weights(w), Batch(*batch)
        program = pl.program_id(0)
        fixed = [*read(settings, TILE), *read(rest, TILE)]

        def tile(row, number, sums):
            into, bias, out, single = sums
            times = number * TILE + jnp.arange(TILE)
            load = lambda ref, *i: triton.load(ref.at[(row, times, *i)], mask=times < horizon, other=0)
            seen = [load(batch.observation, i) for i in range(inputs)]
            acted = [load(batch.action, i) for i in range(batch.action.shape[2])]
            c = jnp.where(times < batch.length[row], load(coefficient), 0.0)
            h = hidden(w, seen)
            slopes = [c * slope for slope in own.slope(*fixed, *output(w, h), *acted)]
            rest_pull, pull = slopes[:loose], slopes[loose:]  # on the other parameters, on each output
            into_hidden = sum(p[:, None] * weight for p, weight in zip(pull, w.out, strict=True)) * (1.0 - h * h)
            return (
                [total + x[:, None] * into_hidden for total, x in zip(into, seen, strict=True)],
                bias + into_hidden,
                [total + p[:, None] * h for total, p in zip(out, pull, strict=True)],
                [total + p for total, p in zip(single, [*pull, *rest_pull], strict=True)],
            )

        block, line = jnp.zeros((TILE, size)), jnp.zeros((TILE,))
        begin = ([block] * inputs, block, [block] * outputs, [line] * (outputs + loose))

        def trajectory(row, sums):
            return jax.lax.fori_loop(0, -(-batch.length[row] // TILE), functools.partial(tile, row), sums)

        first = program * group
        into, bias, out, single = jax.lax.fori_loop(first, jnp.minimum(first + group, n), trajectory, begin)
        for i, total in enumerate([*into, bias, *out]):
            wide[program, i, :] = total.sum(axis=0)
        for i, total in enumerate(single):
            narrow[program, i] = total.sum()

    out_shape = (
        jax.ShapeDtypeStruct((programs, inputs + 1 + outputs, size), jnp.float32),
        jax.ShapeDtypeStruct((programs, outputs + loose), jnp.float32),
    )
    operands = (packed, scalars(policy), scalars(others), read_batch(trajectories), coefficient)
    wide, narrow = (x.sum(axis=0) for x in call(kernel, programs, out_shape, interpret, *operands))
    width = layers[0]["bias"].shape[0]
    network = [
        {"weight": wide[:inputs, :width], "bias": wide[inputs, :width]},
        {"weight": wide[inputs + 1 :, :width].T, "bias": narrow[:outputs]},
    ]
    left = iter(narrow[outputs:])
    loose_gradient = jax.tree.map(lambda leaf: jnp.stack([next(left) for _ in range(leaf.size)]).reshape(leaf.shape), others)
    return {**loose_gradient, name: network}
