"""Agent: the verbs, and that they mean what they say."""

import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest

import stormpg
from stormpg import Agent
from stormpg.errors import InputError

pytestmark = pytest.mark.slow
ALGORITHM = stormpg.storm_pg(S0=4, B=2)


def small(env="cartpole-continuous", **settings) -> Agent:
    return Agent(env, ALGORITHM, horizon=10, **settings)


def test_learn_again_goes_on():
    """Two halves are the whole: the same numbers, counted on."""
    halves, whole = small().learn(12).learn(8), small().learn(20)
    for name, column in whole.result.columns.items():
        np.testing.assert_array_equal(halves.result.columns[name], column, name)
    jax.tree.map(np.testing.assert_array_equal, halves.params, whole.params)
    with pytest.raises(InputError, match="expected at least 2"):
        halves.learn(1)


def test_an_agent_is_a_run_of_train():
    result = stormpg.train("cartpole-continuous", ALGORITHM, trajectories=20, seeds=[5], horizon=10)
    agent = small(seed=5).learn(20)
    np.testing.assert_array_equal(agent.result.columns["return"], result.columns["return"])


def test_callbacks_stop():
    calls = []
    agent = Agent("cartpole-continuous", ALGORITHM, horizon=10).learn(2000, callback=lambda now: calls.append(now) or False)
    assert len(calls) == 1
    assert agent.result.columns["trajectories"].max() < 2000


@pytest.mark.parametrize("env", ["cartpole-continuous", "cartpole", "gym:CartPole-v1", "gym:Pendulum-v1"])
def test_predict_takes_one_observation_or_a_batch(env):
    agent = small(env)
    shape = agent.env.observation_space.shape
    observations = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    together = agent.predict(observations)
    assert len(together) == 5
    np.testing.assert_allclose(agent.predict(observations[2]), together[2], rtol=1e-5)
    mode = jax.vmap(agent.policy.mode, (None, 0))(agent.params, observations)
    limit = {"cartpole-continuous": 1, "gym:Pendulum-v1": 2}.get(env, np.inf)
    np.testing.assert_allclose(together, np.clip(mode, -limit, limit), rtol=1e-4)
    sampled = {str(agent.predict(observations[0], deterministic=False)) for _ in range(30)}
    assert len(sampled) > 1
    with pytest.raises(InputError, match="expected"):
        agent.predict(np.zeros(17))


@pytest.fixture
def traced():
    """The names of everything that JAX traces or compiles from here on."""
    names = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, seconds, **_: names.append(name))
    yield names
    jax.monitoring.clear_event_listeners()


class Own:
    """A policy that NumPy cannot act for."""

    def __init__(self):
        self.inner = stormpg.policy_for(stormpg.make("cartpole-continuous"))
        self.init, self.sample, self.log_prob, self.mode = (
            getattr(self.inner, name) for name in ("init", "sample", "log_prob", "mode")
        )


@pytest.mark.parametrize("policy", [None, Own()], ids=["in NumPy", "compiled"])
def test_predict_traces_nothing(policy, traced):
    """Only the first call may: whatever the observation, the next ones run what is there."""
    agent = small(policy=policy)
    for number in range(3):
        agent.predict(np.full(4, number), deterministic=number % 2 == 0)
    before = len(traced)
    for number in range(3, 9):
        agent.predict(np.full(4, number), deterministic=number % 2 == 0)
    assert len(traced) == before
    jax.jit(lambda x: x + 1)(np.zeros(4))
    assert len(traced) > before  # and the list does grow where something is traced


def test_predicted_actions_are_the_environments(tmp_path):
    env = gymnasium.make("Pendulum-v1")
    agent = small(env)
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.predict(observation, deterministic=False))


def test_saved_and_loaded_in_a_new_process(tmp_path):
    agent = small("gym:CartPole-v1", policy=stormpg.policy_for(stormpg.make("gym:CartPole-v1"), normalise=True)).learn(12)
    agent.save(tmp_path / "agent")
    agent.save(tmp_path / "agent")  # again, in its place
    code = (
        "import numpy as np, stormpg; agent = stormpg.Agent.load('agent');"
        "print(agent.predict(np.full((3, 4), 0.1)).tolist(), agent.evaluate(3, seed=1).returns.tolist());"
        "agent.learn(4); print(agent.result.columns['trajectories'].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    here = agent.predict(np.full((3, 4), 0.1)).tolist(), agent.evaluate(3, seed=1).returns.tolist()
    assert done.stdout.splitlines()[0] == f"{here[0]} {here[1]}"
    assert done.stdout.splitlines()[1] == str(agent.learn(4).result.columns["trajectories"].tolist())
    assert not list(tmp_path.glob(".*"))


def test_save_refuses_what_is_no_agent(tmp_path):
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(InputError, match="not an agent"):
        small().learn(6).save(tmp_path)
    with pytest.raises(InputError, match="nothing to save"):
        small().save(tmp_path / "new")


@pytest.mark.parametrize("env", ["gym:Pendulum-v1", "cartpole", "cartpole-continuous"])
def test_onnx_gives_the_same_actions(tmp_path, env):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    made = stormpg.make(env)
    agent = small(made, policy=stormpg.policy_for(made, hidden=(16, 8), normalise=True)).learn(6)
    file = agent.export_onnx(tmp_path / "policy.onnx")
    observations = np.random.default_rng(0).normal(size=(50, *made.observation_space.shape)).astype(np.float32)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (actions,) = session.run(None, {"observation": observations})
    np.testing.assert_allclose(actions, agent.predict(observations), rtol=1e-5, atol=1e-6)


def test_a_policy_of_ones_own_needs_to_be_given_again(tmp_path):
    own = stormpg.gaussian((lambda key: jax.numpy.zeros(4), lambda p, obs: (p * obs).sum()[None]), 1)
    agent = small(policy=own).learn(6)
    agent.save(tmp_path / "agent")
    with pytest.raises(InputError, match="a policy of its user's own"):
        Agent.load(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", policy=own)
    np.testing.assert_allclose(loaded.predict(np.ones(4)), agent.predict(np.ones(4)))
