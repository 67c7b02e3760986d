"""Write your own training loop: `init` and `step` work with `jax.jit` and `jax.vmap`.

state = stormpg.init(env, policy, algorithm, seed=0)
step = jax.jit(lambda state: stormpg.step(env, policy, algorithm, state))
for _ in range(100):
    state, info = step(state)
"""

import functools
from typing import Any

import jax

from stormpg.algorithms import Algorithm
from stormpg.contract import Moment
from stormpg.engine.budget import Budget
from stormpg.engine.compiled_loop import iterate
from stormpg.engine.iteration import Setup, State, begin, is_large
from stormpg.engine.metrics import Row
from stormpg.engine.python_loop import PythonLoop
from stormpg.envs import as_environment
from stormpg.pytrees import as_block, first_of, traceable


def init(env: Any, policy: Any, algorithm: Algorithm, seed: Any = 0, horizon: int | None = None) -> State:
    """The state of a run before its first batch. `seed` may be traced, for example by `jax.vmap` over an array of seeds."""
    return begin(_setup(env, policy, algorithm, horizon), seed)


def step(env: Any, policy: Any, algorithm: Algorithm, state: State, horizon: int | None = None) -> tuple[State, Row]:
    """One iteration: sample what the algorithm wants, and update the parameters. The second value is the row of the metrics.

    Under `jax.vmap` an algorithm with large and small batches computes both in every step; `train` avoids this. An environment
    outside JAX is opened for each step, and works without `jax.jit` and `jax.vmap` only.
    """
    setup = _setup(env, policy, algorithm, horizon)
    if not setup.env.in_jax:
        return _step_outside(setup, state)
    large = algorithm.schedule.large(state.schedule, Moment(state.key, state.iteration))
    if isinstance(large, bool):  # the same every time
        return iterate(setup, state, large, Budget())
    either = [functools.partial(iterate, setup, large=size, budget=Budget()) for size in (True, False)]
    after, row = jax.lax.cond(large, *either, state)
    return after, row


def _setup(env: Any, policy: Any, algorithm: Algorithm, horizon: int | None) -> Setup:
    env = as_environment(env)
    return Setup(env, env.horizon if horizon is None else horizon, traceable(policy), algorithm)


def _step_outside(setup: Setup, state: State) -> tuple[State, Row]:
    loop = PythonLoop(setup.env, setup.horizon)
    try:
        pattern = ((bool(is_large(setup, state)), 1),)
        policy, algorithm, states = as_block((setup.policy, setup.algorithm, state))
        states, rows = loop.follow(pattern, policy, algorithm, states, Budget())
    finally:
        loop.close()
    return first_of(states), jax.tree.map(lambda x: x[0, 0], rows)
