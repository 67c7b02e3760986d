"""The built-in environments, compared with Gymnasium, recordings of rllab on Box2D, a Box2D world, and formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg.envs import acrobot, cartpole, chain, lqr, mountain_car, pendulum, rllab_cartpole
from stormpg.errors import InputError

COUNT = 3000


def compare(env, states, actions, gym_id, to_gym):
    """Compare one step from each of thousands of states with Gymnasium; return which ended."""
    gymnasium = pytest.importorskip("gymnasium")
    judge = gymnasium.make(gym_id).unwrapped
    key = jax.random.key(0)
    _ahead, seen, reward, terminated = jax.jit(jax.vmap(env.step, (None, 0, 0)))(key, states, actions)
    for i in range(COUNT):
        judge.reset(seed=0)
        judge.state = to_gym(jax.tree.map(lambda x, i=i: np.asarray(x[i]), states))
        if hasattr(judge, "steps_beyond_terminated"):
            judge.steps_beyond_terminated = None
        observation, gain, ended, _, _ = judge.step(np.asarray(actions[i]) if actions.ndim > 1 else int(actions[i]))
        np.testing.assert_allclose(seen[i], observation, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(reward[i], gain, rtol=2e-5, atol=2e-5)
        assert bool(terminated[i]) == ended, (states, observation)
    return np.asarray(terminated)


def uniform(rng, bounds):
    return [jnp.asarray(rng.uniform(-b, b, COUNT), jnp.float32) for b in bounds]


@pytest.mark.slow
def test_cartpole_is_gymnasiums():
    rng = np.random.default_rng(0)
    states = cartpole.State(*uniform(rng, (2.5, 3, 0.25, 3)))
    actions = jnp.asarray(rng.integers(0, 2, COUNT))
    ended = compare(stormpg.make("cartpole"), states, actions, "CartPole-v1", lambda s: np.array(s, float))
    assert 0.1 < ended.mean() < 0.9


def test_cartpole_continuous_at_full_force_is_the_discrete_one():
    rng = np.random.default_rng(0)
    states = cartpole.State(*uniform(rng, (2.5, 3, 0.25, 3)))
    choice = rng.integers(0, 2, COUNT)
    step = lambda env, a: jax.vmap(env.step, (None, 0, 0))(jax.random.key(0), states, a)
    discrete = step(stormpg.make("cartpole"), jnp.asarray(choice))
    continuous = step(stormpg.make("cartpole-continuous"), jnp.asarray((2.0 * choice - 1) * 3)[:, None])  # clipped to ±1
    jax.tree.map(np.testing.assert_array_equal, discrete, continuous)
    half = step(stormpg.make("cartpole-continuous"), jnp.full((COUNT, 1), 0.5))
    assert (np.asarray(half[0].v) < np.asarray(step(stormpg.make("cartpole"), jnp.ones(COUNT, int))[0].v)).all()


@pytest.mark.slow
def test_mountain_car_continuous_is_gymnasiums():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.uniform(-1.2, 0.6, COUNT), jnp.float32)
    states = mountain_car.State(x, uniform(rng, (0.07,))[0])
    actions = jnp.asarray(rng.normal(size=(COUNT, 1)), jnp.float32)
    ended = compare(
        stormpg.make("mountain-car-continuous"), states, actions, "MountainCarContinuous-v0", lambda s: np.array(s, np.float32)
    )
    assert 0.02 < ended.mean() < 0.5


def test_pendulum_is_gymnasiums():
    rng = np.random.default_rng(0)
    states = pendulum.State(*uniform(rng, (4.0, 8.0)))
    actions = jnp.asarray(2 * rng.normal(size=(COUNT, 1)), jnp.float32)
    compare(stormpg.make("pendulum"), states, actions, "Pendulum-v1", lambda s: np.array(s, float))


@pytest.mark.slow
def test_acrobot_is_gymnasiums():
    rng = np.random.default_rng(0)
    states = acrobot.State(*uniform(rng, (3.1, 3.1, 4.0, 6.0)))
    actions = jnp.asarray(rng.integers(0, 3, COUNT))
    ended = compare(stormpg.make("acrobot"), states, actions, "Acrobot-v1", lambda s: np.array(s, float))
    assert 0.1 < ended.mean() < 0.9


def play_back(env, state, forces):
    """Observations, rewards and ends of all steps with this sequence of actions."""

    def step(state, action):
        state, observation, reward, terminated = env.step(jax.random.key(0), state, action)
        return state, (observation, reward, terminated)

    return jax.lax.scan(step, state, forces)[1]


def cartpole_start(observation):
    """rllab's state after a reset: only the cart is moved; the pole's position stays as it was."""
    x, v, angle, omega = observation
    half = rllab_cartpole.HALF_LENGTH
    zero = jnp.zeros_like(x)
    return rllab_cartpole.State(x, v, -half * jnp.sin(angle), half * jnp.cos(angle), zero, zero, angle, omega)


def lengths_and_returns(observation, reward, ended, horizon=100):
    first = np.argmax(np.asarray(ended), axis=1)
    length = np.where(np.asarray(ended).any(axis=1), first + 1, horizon)
    live = np.arange(horizon) < length[:, None]
    return length, (np.asarray(reward) * live).sum(axis=1)


def test_rllab_cartpole_follows_the_recordings(recorded):
    """Replay the recorded forces, with the feedback of a balancing policy added.

    An upright pole multiplies an error by 3 every 5 steps, so after 60 steps a replay without feedback is meaningless, even
    in Box2D itself. Half of the recorded policies balance the pole; the gains were fitted to them.
    """
    data = np.load(recorded / "rllab_cartpole.npz")
    env, gain = stormpg.make("rllab-cartpole"), jnp.asarray([1.6, 2.45, -49.8, -4.9]) / rllab_cartpole.FORCE

    def follow(observation, force):
        def step(carry, inputs):
            state, seen = carry
            wanted, push = inputs
            action = push / rllab_cartpole.FORCE + gain @ jnp.where(jnp.isnan(wanted), 0.0, seen - wanted)
            state, seen, reward, terminated = env.step(jax.random.key(0), state, action[None])
            return (state, seen), (seen, reward, terminated)

        start = (cartpole_start(observation[0]), observation[0])
        return jax.lax.scan(step, start, (observation[:-1], force))[1]

    length, total = lengths_and_returns(
        *jax.jit(jax.vmap(follow))(jnp.asarray(data["observation"]), jnp.asarray(data["force"]))
    )
    live = np.arange(100) < data["length"][:, None]
    assert (length == data["length"]).mean() >= 0.99
    np.testing.assert_allclose(total.mean(), np.where(live, data["reward"], 0).sum(axis=1).mean(), rtol=1e-3)


def test_rllab_cartpole_is_box2d():
    """Compare with a Box2D world built here, with rllab's cart and pole and random forces."""
    box2d = pytest.importorskip("Box2D")
    env, rng = stormpg.make("rllab-cartpole"), np.random.default_rng(4)
    play, same = jax.jit(lambda state, forces: play_back(env, state, forces)), 0
    for _ in range(40):
        start = rng.uniform(-1, 1, 4) * rllab_cartpole.RESET_BOUNDS
        forces = np.clip(rng.normal(scale=0.4, size=100) + 0.2, -1, 1) * rllab_cartpole.FORCE
        judged = box2d_cartpole(box2d, start, forces)
        observation, _, ended = play(
            cartpole_start(jnp.asarray(start, jnp.float32)), jnp.asarray(forces / rllab_cartpole.FORCE, jnp.float32)[:, None]
        )
        length = int(np.argmax(ended)) + 1 if np.asarray(ended).any() else 100
        np.testing.assert_allclose(observation[: min(5, length)], judged[: min(5, length)], atol=2e-3)
        same += length == len(judged)
    assert same >= 39


def box2d_cartpole(box2d, start, forces):
    """Observations of rllab's Cart-Pole in a Box2D world: a cart on a rail, a pole on a hinge."""
    world = box2d.b2World(gravity=(0, -10), doSleep=False)
    track = world.CreateStaticBody(position=(0, -0.05))
    # Boxes with rllab's masses and inertia. Collisions are disabled.
    off = {"categoryBits": 0, "maskBits": 0}
    cart = world.CreateDynamicBody(position=(0, 0))
    cart.CreatePolygonFixture(box=(0.5, 0.25), density=rllab_cartpole.MASS_CART / 0.5, **off)
    pole = world.CreateDynamicBody(position=(0, 0))
    pole.CreatePolygonFixture(box=(0.05, 0.5, (0, 0.5), 0), density=rllab_cartpole.MASS_POLE / 0.1, **off)
    world.CreatePrismaticJoint(bodyA=track, bodyB=cart, axis=(1, 0), anchor=(0, 0))
    world.CreateRevoluteJoint(bodyA=cart, bodyB=pole, anchor=(0, 0))
    x, v, angle, omega = (float(number) for number in start)
    cart.position, cart.linearVelocity = (x, 0), (v, 0)
    pole.angle, pole.angularVelocity = angle, omega
    pole.linearVelocity = (0, 0)
    seen = []
    for force in forces:
        cart.ApplyForce((float(force), 0), cart.worldCenter, True)
        world.Step(rllab_cartpole.DT, 8, 3)
        seen.append((cart.position[0], cart.linearVelocity[0], pole.angle, pole.angularVelocity))
        if abs(seen[-1][0]) > rllab_cartpole.X_LIMIT or abs(seen[-1][2]) > rllab_cartpole.ANGLE_LIMIT:
            break
    return np.array(seen)


def test_lqr_of_any_dimension_is_its_formula():
    env, system = stormpg.make("lqr", state_dim=5, action_dim=2, noise=0.0), lqr.system(5, 2, 0.0)
    rng = np.random.default_rng(0)
    s, a = rng.normal(size=5), rng.normal(size=2)
    _state, seen, reward, ended = env.step(jax.random.key(0), lqr.State(jnp.asarray(s)), jnp.asarray(a))
    np.testing.assert_allclose(seen, system.A @ s + system.B @ a, rtol=1e-5)
    np.testing.assert_allclose(reward, -(s @ system.Q @ s + a @ system.R @ a), rtol=1e-5)
    assert not ended
    noisy = stormpg.make("lqr", state_dim=3, noise=0.5)
    ahead = jax.vmap(lambda k: noisy.step(k, lqr.State(jnp.zeros(3)), jnp.zeros(1))[1])(
        jax.random.split(jax.random.key(1), 4000)
    )
    np.testing.assert_allclose(np.std(ahead, axis=0), 0.5, rtol=0.05)


def test_chain_moves_as_its_tables_say():
    env, tables = stormpg.make("chain"), chain.chain_tables()
    keys = jax.random.split(jax.random.key(0), 5000)
    first = np.bincount(np.asarray(jax.vmap(env.reset)(keys)[1]), minlength=3) / 5000
    np.testing.assert_allclose(first, tables.rho, atol=0.03)
    for s in range(2):
        for a in range(2):
            ahead = jax.vmap(lambda k, s=s, a=a: env.step(k, chain.State(jnp.asarray(s)), jnp.asarray(a)))(keys)
            np.testing.assert_allclose(np.bincount(np.asarray(ahead[1]), minlength=3) / 5000, tables.P[s, a], atol=0.03)
            np.testing.assert_array_equal(ahead[3], tables.terminal[np.asarray(ahead[1])])


def test_unknown_names_and_settings():
    with pytest.raises(InputError, match="did you mean 'cartpole'"):
        stormpg.make("cart-pole")
    with pytest.raises(InputError, match="did you mean 'state_dim'"):
        stormpg.make("lqr", state_dims=3)
    with pytest.raises(InputError, match="it has none"):
        stormpg.make("pendulum", gravity=9.0)
