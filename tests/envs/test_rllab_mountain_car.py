"""rllab's Mountain-Car, compared with Box2D (`box2d:rllab-mountain-car`) and, if available, with recordings.

Each side runs in closed loop: the same starts, noise and policy, applied to its own observations. In Box2D itself, the mean
over twelve starts changes by a few percent, for a few policies by 15 %, if all episodes share one world as in rllab.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stormpg.envs import rllab_mountain_car as car

pytestmark = pytest.mark.slow

EPISODES, HORIZON = 12, 1000

# The policies of the recordings and others, as functions of the position x, the speed v and normal noise n.
RECORDED = {
    "zero": lambda x, v, n: 0 * n,
    "normal(0,1)": lambda x, v, n: n,
    "constant +1": lambda x, v, n: 1 + 0 * n,
    "sign(v)": lambda x, v, n: np.sign(v),
    "0.8 sign(v)": lambda x, v, n: 0.8 * np.sign(v),
    "0.9 sign(v)+0.3 normal": lambda x, v, n: 0.9 * np.sign(v) + 0.3 * n,
    "0.7 sign(v)+0.7 normal": lambda x, v, n: 0.7 * np.sign(v) + 0.7 * n,
    "2 v+0.5 normal": lambda x, v, n: 2 * v + 0.5 * n,
}
OTHERS = {
    "0.6 sign(v)": lambda x, v, n: 0.6 * np.sign(v),
    "0.85 sign(v)": lambda x, v, n: 0.85 * np.sign(v),
    "sign(v + 0.2 x)": lambda x, v, n: np.sign(v + 0.2 * x),
    "sign(v) + 0.5 normal": lambda x, v, n: np.sign(v) + 0.5 * n,
    "1.5 v + 0.3 normal": lambda x, v, n: 1.5 * v + 0.3 * n,
    "4 v + 0.2 normal": lambda x, v, n: 4 * v + 0.2 * n,
    "tanh(5 v) + 0.3 normal": lambda x, v, n: np.tanh(5 * v) + 0.3 * n,
    "constant -1": lambda x, v, n: -1 + 0 * n,
}


def draws(name, episodes):
    rng = np.random.default_rng(len(name))
    return rng.uniform(-1, 1, episodes), rng.normal(size=(episodes, HORIZON))


one_step = jax.jit(jax.vmap(lambda state, action: car.step(None, state, action)))


def model_steps(policy, speeds, noise):
    """Steps until the goal in the JAX model; HORIZON if it is not reached."""
    state, steps, alive = jax.vmap(car.start)(jnp.asarray(speeds, jnp.float32)), np.full(len(speeds), HORIZON), True
    for t in range(HORIZON):
        action = policy(np.asarray(state.x), np.asarray(state.vx), noise[:, t])
        state, _, _, ended = one_step(state, jnp.asarray(action, jnp.float32))
        here = np.asarray(state.x) >= car.GOAL_X
        steps = np.where(alive & here, t + 1, steps)
        alive = alive & ~np.asarray(ended)
        if not alive.any():
            break
    return steps


def box2d_steps(env, policy, speed, noise):
    """Steps until the goal of one episode in Box2D; HORIZON if it is not reached."""
    seen, _ = env.reset(options={"speed": speed})
    for t in range(HORIZON):
        seen, _, ended, _, _ = env.step([policy(*map(float, seen), noise[t])])
        if ended:
            return t + 1 if seen[0] >= car.GOAL_X else HORIZON
    return HORIZON


def agree(ours, theirs):
    """Check that the means differ by less than 15 %, and that no side always reaches the goal if the other never does."""
    assert abs(np.mean(ours) / np.mean(theirs) - 1) < 0.15, (np.mean(ours), np.mean(theirs))
    here, there = np.asarray(ours) < HORIZON, np.asarray(theirs) < HORIZON
    assert not (here.all() and not there.any())
    assert not (there.all() and not here.any())


@pytest.mark.parametrize("name", [*RECORDED, *OTHERS])
def test_steps_to_the_goal_are_box2ds(name):
    env, policy = pytest.importorskip("stormpg.envs.box2d").MountainCar(), (RECORDED | OTHERS)[name]
    speeds, noise = draws(name, EPISODES)
    theirs = [box2d_steps(env, policy, s, n) for s, n in zip(speeds, noise, strict=True)]
    many, more_noise = draws(name, 4 * EPISODES)
    agree(model_steps(policy, many, more_noise), theirs)


@pytest.mark.parametrize("name", RECORDED)
def test_steps_to_the_goal_are_the_recordings(recorded, name):
    """Uses the recorded starts, and noise of the same distribution: the recorded noise is unknown, as forces are clipped."""
    data = np.load(recorded / "rllab_mountaincar.npz")
    mine = data["policy"] == list(data["policy_name"]).index(name)
    theirs = np.where(data["reached_goal"], data["length"], HORIZON)[mine]
    speeds = np.tile(data["observation"][mine, 0, 1], 4)
    agree(model_steps(RECORDED[name], speeds, np.random.default_rng(0).normal(size=(len(speeds), HORIZON))), theirs)


def test_it_rests_where_box2d_rests():
    """The car vibrates on its wheels, with a speed below 0.03, but does not move away."""
    step = lambda state, _: (car.step(None, state, jnp.zeros(1))[0],) * 2
    _, states = jax.jit(lambda state: jax.lax.scan(step, state, length=400))(car.start(jnp.asarray(0.5)))
    y, vx = np.asarray(states.y)[300:], np.asarray(states.vx)[300:]
    np.testing.assert_allclose(y, 0.166, atol=2e-3)
    assert np.abs(vx).max() < 0.03
    assert abs(vx.mean()) < 1e-2


def test_it_stays_finite_from_anywhere():
    wild = np.random.default_rng(0).uniform(-1, 1, (6, 500)) * np.array([[2], [2], [4], [9], [9], [40]])
    step = jax.vmap(lambda s: car.step(None, s, jnp.ones(1))[0])
    last = jax.jit(lambda s: jax.lax.scan(lambda s, _: (step(s), None), s, length=300)[0])(
        car.State(*jnp.asarray(wild, jnp.float32))
    )
    assert all(bool(jnp.isfinite(x).all()) for x in last)
