"""The GPU kernels of a whole rollout, and of cumulative sums over its steps.

In plain JAX every step of a rollout launches several kernels, and thousands of small kernels run one after another. Here the
steps of a trajectory are a loop inside one kernel, which stops when all its episodes have ended. The environment and the policy
are traced from their own functions (`scalar_code`). Only the network, one hidden layer of tanh units, is written by hand
(`network_gpu`). A rollout stores the network's outputs; JAX computes the densities from them afterwards. What is computed from
a batch has kernels of its own (`rows_gpu`).
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

from stormpg.kernels.network import check_floats, head, power_of_two, scalars, split, without_normalisation
from stormpg.kernels.network_gpu import Ref, call, hidden, load_weights, output, read, weights_on_a_gpu
from stormpg.kernels.rows import Kept, log_densities, rows_of
from stormpg.kernels.scalar_code import on_lanes
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import Tree
from stormpg.trajectories import Trajectories

LANES = 32  # the largest number of trajectories per program
ROWS, STEPS = 8, 128  # trajectories and steps whose sums a program computes at once; the compiler fails for some other numbers

LoopState = tuple[Array, list[Array], list[Array], Array]  # of a rollout: time, state, observation, 1 while the episode runs


def step_on_lanes(step: Callable[..., Any], *shapes: Any) -> Callable[..., list[Array]]:
    """Return `on_lanes(step, *shapes)` from a cache, because an environment's step is slow to trace."""
    leaves, structure = jax.tree.flatten(shapes)
    return _cached_on_lanes(step, structure, tuple(leaves))


@functools.lru_cache(maxsize=16)
def _cached_on_lanes(step: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]) -> Callable[..., list[Array]]:
    return on_lanes(step, *jax.tree.unflatten(structure, leaves))


def rollout(
    policy: Any,
    params: Tree,
    start: tuple[Tree, Array],
    noise: Array,
    *,
    env: Any,
    horizon: int,
    keep: bool = False,
) -> tuple[Trajectories, Kept | None]:
    """Return n trajectories from `start`, and the network's outputs if they are kept."""
    inner, own = without_normalisation(policy, params)
    _, layers, others = split(inner, own)
    state, first = start
    n, width = first.shape
    check_floats(first)
    lanes = min(power_of_two(n), LANES)

    def per_trajectory(x: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

    draw = jax.ShapeDtypeStruct(noise.shape[2:], noise.dtype)
    action = jax.eval_shape(policy.act, params, per_trajectory(first), draw)
    outputs = layers[-1]["bias"].shape[0]
    act = head(inner, own, outputs, action).act(draw)
    scales, scale = normalisation(policy, params, per_trajectory(first))
    key = jax.eval_shape(jax.random.key, 0)
    advance = step_on_lanes(env.step, key, jax.tree.map(per_trajectory, state), action)
    start_fields = [jnp.reshape(x, (n, -1)) for x in jax.tree.leaves(state)]
    draws, moves = int(np.prod(draw.shape)), int(np.prod(action.shape))

    def kernel(w: Ref, settings: Ref, rest: Ref, scales: Ref, noise: Ref, first: Ref, *refs: Ref) -> None:
        fields, (observations, actions, rewards, masks, outs) = refs[: len(start_fields)], refs[len(start_fields) :]
        w = load_weights(w)
        rows = pl.program_id(0) * lanes + jnp.arange(lanes)
        inside = rows < n
        fixed, scaled_by = [*read(settings, lanes), *read(rest, lanes)], read(scales, lanes)

        def load(ref: Ref, *at: Any) -> Array:
            return triton.load(ref.at[(rows, *at)], mask=inside, other=0)

        def store(ref: Ref, value: Array, *at: Any) -> None:
            triton.store(ref.at[(rows, *at)], value, mask=inside)

        def step(loop: LoopState) -> LoopState:
            time, state, seen, alive = loop
            out = output(w, hidden(w, scale(*scaled_by, *seen)))
            acted = act(*fixed, *out, *(load(noise, time, i) for i in range(draws)))
            *ahead, reward, over = advance(*state, *acted)
            live = alive > 0
            for ref, numbers in ((observations, seen), (actions, acted), (outs, out)):
                for i, x in enumerate(numbers):
                    store(ref, x, time, i)
            store(rewards, jnp.where(live, reward, 0.0), time)
            store(masks, alive.astype(jnp.float32), time)
            going = live & ~over
            kept = [jnp.where(going, new, old) for new, old in zip(ahead, [*state, *seen], strict=True)]
            return time + 1, kept[: len(state)], kept[len(state) :], going.astype(jnp.int32)

        state = [load(ref, i) for ref in fields for i in range(ref.shape[1])]
        seen = [load(first, i) for i in range(width)]
        begin = (jnp.int32(0), state, seen, inside.astype(jnp.int32))
        ended = jax.lax.while_loop(lambda loop: (loop[0] < horizon) & (loop[3].max() > 0), step, begin)[0]

        def clear(time: Array, carry: Array) -> Array:
            for ref in (observations, actions, outs):
                for i in range(ref.shape[2]):
                    store(ref, jnp.zeros((lanes,), ref.dtype), time, i)
            for ref in (rewards, masks):
                store(ref, jnp.zeros((lanes,), ref.dtype), time)
            return carry

        jax.lax.fori_loop(ended, horizon, clear, 0)

    number = jax.ShapeDtypeStruct((n, horizon), jnp.float32)
    out_shape = (
        jax.ShapeDtypeStruct((n, horizon, width), first.dtype),
        jax.ShapeDtypeStruct((n, horizon, moves), action.dtype),
        number, number,
        jax.ShapeDtypeStruct((n, horizon, outputs), jnp.float32),
    )  # fmt: skip
    numbers = scalars(inner), scalars(others), scalars(scales)
    operands = (weights_on_a_gpu(layers), *numbers, noise.reshape(n, horizon, -1), first, *start_fields)
    seen, acted, reward, mask, out = call(kernel, -(-n // lanes), out_shape, *operands)
    made = Trajectories(seen, acted.reshape(n, horizon, *action.shape), reward, mask, jnp.zeros_like(mask))
    rows = rows_of(policy, params, made)
    log_prob = log_densities(rows, out, rows.everywhere(), made.action)
    return made._replace(log_prob=log_prob), Kept(out, None) if keep else None


def normalisation(policy: Any, params: Tree, observation: Any) -> tuple[tuple[Array, ...], Callable[..., list[Array]]]:
    """Return the numbers by which a policy normalises, and its function of them and of an observation, on lanes."""
    if type(policy) is not Normalised:
        return (), lambda *seen: list(seen)
    scales = policy.shift_and_spread(params)
    return scales, on_lanes(policy.scale_by, *scales, observation)


def running_sums(x: Array, backward: bool) -> Array:
    """Return Σ_{k≤h} x_k, or Σ_{k≥h} x_k, for x [n, H]. XLA would add 16 numbers for each sum."""
    n, horizon = x.shape
    blocks = -(-horizon // STEPS)

    def kernel(numbers: Ref, sums: Ref) -> None:
        program = pl.program_id(0)
        row = (program // blocks * ROWS + jnp.arange(ROWS))[:, None]
        step = (program % blocks * STEPS + jnp.arange(STEPS))[None, :]
        inside = (row < n) & (step < horizon)
        at = row, jnp.where(step < horizon, horizon - 1 - step, step) if backward else step
        triton.store(sums.at[at], jnp.cumsum(triton.load(numbers.at[at], mask=inside, other=0), axis=1), mask=inside)

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    of_blocks: Array = call(kernel, -(-n // ROWS) * blocks, shape, x)
    if blocks == 1:
        return of_blocks
    ends = np.arange(1, blocks) * STEPS - 1
    before = jnp.cumsum(of_blocks[:, horizon - 1 - ends if backward else ends], axis=1)
    block = np.arange(horizon) // STEPS
    return of_blocks + jnp.pad(before, ((0, 0), (1, 0)))[:, block[::-1] if backward else block]
