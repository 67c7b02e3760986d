"""GPU kernels for a whole rollout, for the log-probabilities of a batch, and for its weighted sum of scores.

In plain JAX every step of a rollout launches several kernels, and thousands of small kernels run one after another. Here the
steps of a trajectory are a loop inside one kernel, which stops when all its episodes have ended. The environment and the policy
are traced from their own functions (`scalar_code`). Only the network, one hidden layer of tanh units, is written by hand
(`network`).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from stormpg.kernels.network import (
    Batch,
    head,
    hidden,
    load_weights,
    output,
    power_of_two,
    read,
    read_batch,
    scalars,
    split,
    unpacked,
    weight_slopes,
    weights_on_a_gpu,
)
from stormpg.kernels.scalar_code import on_lanes
from stormpg.pytrees import Tree
from stormpg.trajectories import Trajectories, over_runs

LANES = 32  # the largest number of trajectories per program of a rollout
TILE = 4  # the number of steps of a trajectory whose log-probabilities a program computes at once
SUM_TILE = 2  # the same for the sum of scores
PROGRAMS = 8192  # this many programs fill a GPU; larger batches give each program several trajectories

Ref = Any  # a Pallas reference to an array in GPU memory
Sums = tuple[list[Array], list[Array]]  # of scores: for vectors of weights, and for single numbers
LoopState = tuple[Array, list[Array], list[Array], Array]  # of a rollout: time, state, observation, 1 while the episode runs


def step_on_lanes(step: Callable[..., Any], *shapes: Any) -> Callable[..., list[Array]]:
    """Return `on_lanes(step, *shapes)` from a cache, because an environment's step is slow to trace."""
    leaves, structure = jax.tree.flatten(shapes)
    return _cached_on_lanes(step, structure, tuple(leaves))


@functools.lru_cache(maxsize=16)
def _cached_on_lanes(step: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]) -> Callable[..., list[Array]]:
    return on_lanes(step, *jax.tree.unflatten(structure, leaves))


def call(kernel: Callable[..., None], programs: int, out_shape: Any, interpret: bool, *operands: Any) -> Any:
    """Run a kernel on a grid of `programs` programs. `interpret`: in Python, without a GPU."""
    return pl.pallas_call(
        kernel,
        grid=(programs,),
        out_shape=out_shape,
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=1, num_stages=1),
    )(*operands)


def rollout(
    policy: Any,
    params: Tree,
    start: tuple[Tree, Array],
    noise: Array,
    *,
    env: Any,
    horizon: int,
    keep: bool = False,
    interpret: bool = False,
) -> tuple[Trajectories, None]:
    """Return n trajectories from `start`. These kernels keep nothing."""
    _, layers, others = split(policy, params)
    state, first = start
    n, width = first.shape
    lanes = min(power_of_two(n), LANES)

    def per_trajectory(x: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

    draw = jax.ShapeDtypeStruct(noise.shape[2:], noise.dtype)
    action = jax.eval_shape(policy.act, params, per_trajectory(first), draw)
    policy_head = head(policy, params, layers[-1]["bias"].shape[0], action)
    act = policy_head.act(draw)
    key = jax.eval_shape(jax.random.key, 0)
    advance = step_on_lanes(env.step, key, jax.tree.map(per_trajectory, state), action)
    fields = [jnp.reshape(x, (n, -1)) for x in jax.tree.leaves(state)]
    draws, moves = int(np.prod(draw.shape)), int(np.prod(action.shape))

    def kernel(w: Ref, settings: Ref, rest: Ref, noise: Ref, first: Ref, *refs: Ref) -> None:
        fields, (observations, actions, rewards, masks, logs) = refs[:-5], refs[-5:]
        w = load_weights(w)
        rows = pl.program_id(0) * lanes + jnp.arange(lanes)
        inside = rows < n
        fixed = [*read(settings, lanes), *read(rest, lanes)]

        def load(ref: Ref, *at: Any) -> Array:
            return triton.load(ref.at[(rows, *at)], mask=inside, other=0)

        def store(ref: Ref, value: Array, *at: Any) -> None:
            triton.store(ref.at[(rows, *at)], value, mask=inside)

        def step(loop: LoopState) -> LoopState:
            time, state, seen, alive = loop
            out = output(w, hidden(w, seen))
            acted = act(*fixed, *out, *(load(noise, time, i) for i in range(draws)))
            (log_prob,) = policy_head.log_prob(*fixed, *out, *acted)
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

        def clear(time: Array, carry: Array) -> Array:
            for ref in (observations, actions):
                for i in range(ref.shape[2]):
                    store(ref, jnp.zeros((lanes,), ref.dtype), time, i)
            for ref in (rewards, masks, logs):
                store(ref, jnp.zeros((lanes,), ref.dtype), time)
            return carry

        jax.lax.fori_loop(ended, horizon, clear, 0)

    number = jax.ShapeDtypeStruct((n, horizon), jnp.float32)
    out_shape = (
        jax.ShapeDtypeStruct((n, horizon, width), first.dtype),
        jax.ShapeDtypeStruct((n, horizon, moves), action.dtype),
        number, number, number,
    )  # fmt: skip
    operands = (weights_on_a_gpu(layers), scalars(policy), scalars(others), noise.reshape(n, horizon, -1), first, *fields)
    seen, acted, *rest = call(kernel, -(-n // lanes), out_shape, interpret, *operands)
    return Trajectories(seen, acted.reshape(n, horizon, *action.shape), *rest), None


def log_probs(
    policy: Any, params: Tree, trajectories: Trajectories, *, keep: bool = False, interpret: bool = False
) -> tuple[Array, None]:
    """Return log π_ξ(a_h|s_h), [n, H], 0 on padded steps."""
    _, layers, others = split(policy, params)
    n, horizon = trajectories.mask.shape
    action = jax.ShapeDtypeStruct(trajectories.action.shape[2:], trajectories.action.dtype)
    policy_head = head(policy, params, layers[-1]["bias"].shape[0], action)

    def kernel(w: Ref, settings: Ref, rest: Ref, batch: Ref, values: Ref) -> None:
        w, batch = load_weights(w), Batch(*batch)
        row = pl.program_id(0)
        fixed = [*read(settings, TILE), *read(rest, TILE)]

        def steps(number: Array, carry: Array) -> Array:
            times = number * TILE + jnp.arange(TILE)

            def load(ref: Ref, i: int) -> Array:
                return triton.load(ref.at[row, times, i], mask=times < horizon, other=0)

            seen = [load(batch.observation, i) for i in range(batch.observation.shape[2])]
            acted = [load(batch.action, i) for i in range(batch.action.shape[2])]
            (value,) = policy_head.log_prob(*fixed, *output(w, hidden(w, seen)), *acted)
            live = times < batch.length[row]
            triton.store(values.at[row, times], jnp.where(live, value, 0.0), mask=times < horizon)
            return carry

        def clear(number: Array, carry: Array) -> Array:
            times = number * TILE + jnp.arange(TILE)
            triton.store(values.at[row, times], jnp.zeros((TILE,)), mask=times < horizon)
            return carry

        full = -(-batch.length[row] // TILE)
        jax.lax.fori_loop(0, full, steps, 0)
        jax.lax.fori_loop(full, -(-horizon // TILE), clear, 0)

    operands = (weights_on_a_gpu(layers), scalars(policy), scalars(others), read_batch(trajectories))
    values: Array = call(kernel, n, jax.ShapeDtypeStruct((n, horizon), jnp.float32), interpret, *operands)
    return values, None


def score_sum(
    policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array, kept: None = None, *, interpret: bool = False
) -> tuple[Tree, None]:
    """Return Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]."""
    name, layers, others = split(policy, params)
    n, horizon = trajectories.mask.shape
    action = jax.ShapeDtypeStruct(trajectories.action.shape[2:], trajectories.action.dtype)
    packed = weights_on_a_gpu(layers)
    (inputs, size), outputs = packed.into.shape, packed.out.shape[0]
    policy_head = head(policy, params, outputs, action)
    extra = sum(int(np.prod(jnp.shape(leaf))) for leaf in jax.tree.leaves(others))  # parameters outside the network
    group = max(1, min(n, n * over_runs(1) // PROGRAMS))  # trajectories per program
    programs = -(-n // group)
    rows = inputs + 1 + outputs  # input weights, bias, output weights

    def kernel(w: Ref, settings: Ref, rest: Ref, batch: Ref, coefficient: Ref, wide: Ref, narrow: Ref) -> None:
        w, batch = load_weights(w), Batch(*batch)
        program = pl.program_id(0)
        fixed = [*read(settings, SUM_TILE), *read(rest, SUM_TILE)]

        def steps(row: Array, number: Array, sums: Sums) -> Sums:
            times = number * SUM_TILE + jnp.arange(SUM_TILE)

            def load(ref: Ref, *i: int) -> Array:
                return triton.load(ref.at[(row, times, *i)], mask=times < horizon, other=0)

            seen = [load(batch.observation, i) for i in range(inputs)]
            acted = [load(batch.action, i) for i in range(batch.action.shape[2])]
            c = jnp.where(times < batch.length[row], load(coefficient), 0.0)
            h = hidden(w, seen)
            slopes = [c * slope for slope in policy_head.slope(*fixed, *output(w, h), *acted)]
            rest_pull, pull = slopes[:extra], slopes[extra:]  # for the other parameters, for each output
            new: Sums = jax.tree.map(jnp.add, sums, (weight_slopes(w, seen, h, pull), [*pull, *rest_pull]))
            return new

        def trajectory(row: Array, sums: Sums) -> Sums:
            added: Sums = jax.lax.fori_loop(0, -(-batch.length[row] // SUM_TILE), functools.partial(steps, row), sums)
            return added

        begin = [jnp.zeros((size, SUM_TILE))] * rows, [jnp.zeros((SUM_TILE,))] * (outputs + extra)
        first = program * group
        vectors, single = jax.lax.fori_loop(first, jnp.minimum(first + group, n), trajectory, begin)
        for i, total in enumerate(vectors):
            wide[program, i, :] = total.sum(axis=1)
        for i, total in enumerate(single):
            narrow[program, i] = total.sum()

    out_shape = (
        jax.ShapeDtypeStruct((programs, rows, size), jnp.float32),
        jax.ShapeDtypeStruct((programs, outputs + extra), jnp.float32),
    )
    operands = (packed, scalars(policy), scalars(others), read_batch(trajectories), coefficient)
    vectors, single = (x.sum(axis=0) for x in call(kernel, programs, out_shape, interpret, *operands))
    left = iter(single[outputs:])
    extra_gradient = jax.tree.map(lambda leaf: jnp.stack([next(left) for _ in range(leaf.size)]).reshape(leaf.shape), others)
    return {**extra_gradient, name: unpacked(layers, vectors, single[:outputs])}, None
