"""Agent: learn, predict, evaluate, save, load, set_env and export_onnx."""

import inspect
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium.wrappers import RescaleAction

import stormpg
from stormpg import Agent
from stormpg.errors import InputError

pytestmark = pytest.mark.slow
ALGORITHM = stormpg.storm_pg(S0=4, B=2)


def small(env="cartpole-continuous", **settings) -> Agent:
    return Agent(env, ALGORITHM, horizon=10, **settings)


def test_learn_again_goes_on():
    """Two calls of `learn` give the same numbers as one, and the counts continue."""
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
    together = agent.predict(observations, deterministic=True)
    assert len(together) == 5
    np.testing.assert_allclose(agent.predict(observations[2], deterministic=True), together[2], rtol=1e-5)
    mode = jax.vmap(agent.policy.mode, (None, 0))(agent.params, observations)
    limit = {"cartpole-continuous": 1, "gym:Pendulum-v1": 2}.get(env, np.inf)
    np.testing.assert_allclose(together, np.clip(mode, -limit, limit), rtol=1e-4)
    sampled = {str(agent.predict(observations[0])) for _ in range(30)}
    assert len(sampled) > 1
    with pytest.raises(InputError, match="expected"):
        agent.predict(np.zeros(17))


@pytest.mark.parametrize("env", ["cartpole-continuous", "cartpole"])
def test_predict_calls_jax_once_for_many_actions(env, monkeypatch):
    """Noise is drawn for about a thousand actions at once, and a built-in policy acts in NumPy, deterministic or not."""
    agent = small(env)
    agent.predict(np.zeros(4))
    drawn, real = [], stormpg.agent._draw
    monkeypatch.setattr("stormpg.agent._draw", lambda *arguments: drawn.append(arguments[2]) or real(*arguments))
    monkeypatch.setattr("stormpg.policies.acting._compiled", lambda *arguments: pytest.fail("a compiled program was called"))
    for _ in range(1500):
        agent.predict(np.zeros(4))
    agent.predict(np.zeros((2000, 4)))
    agent.predict(np.zeros(4), deterministic=True)
    assert drawn == [1024, 2048]


def test_samples_are_those_of_the_policy_and_of_the_seed():
    """The same seed and calls give the same samples, another seed gives others, and samples do not repeat."""
    seen = np.full(4, 0.1)
    draws = lambda seed: [float(agent.predict(seen)[0]) for agent in [small(seed=seed)] for _ in range(3000)]
    first, other = draws(0), draws(1)
    assert first == draws(0)
    assert len(set(first)) > 0.4 * len(first)  # samples clipped at a bound are equal
    assert first[:50] != other[:50]
    agent = small()
    mean = float(agent.policy.mode(agent.params, seen)[0])
    expected = [np.clip(mean + np.random.default_rng(0).normal(size=200_000), -1, 1)]
    np.testing.assert_allclose(np.mean(first), np.mean(expected), atol=0.05)
    np.testing.assert_allclose(np.std(first), np.std(expected), atol=0.05)


def test_a_policy_of_four_functions_is_sampled():
    class Coin:
        def init(self, key):
            return jnp.zeros(())

        def sample(self, params, key, observation):
            return jax.random.bernoulli(key, jax.nn.sigmoid(params)).astype(int)

        def log_prob(self, params, observation, action):
            return jnp.where(action == 1, jax.nn.log_sigmoid(params), jax.nn.log_sigmoid(-params))

        def mode(self, params, observation):
            return (params > 0).astype(int)

    agent = small("cartpole", policy=Coin())
    assert {int(agent.predict(np.zeros(4))) for _ in range(30)} == {0, 1}
    assert set(agent.predict(np.zeros((30, 4))).tolist()) == {0, 1}


def test_what_acts_is_what_is_measured():
    """`predict` and `evaluate` have the same default: both sample."""
    defaults = [
        inspect.signature(verb).parameters["deterministic"].default for verb in (Agent.predict, Agent.evaluate)
    ]  # fmt: skip
    assert defaults == [False, False]


def test_settings_go_to_the_algorithm_and_to_the_policy():
    agent = Agent("cartpole-continuous", "gpomdp", eta=0.02, S0=7, sigma=0.5, hidden=(8, 4), normalise=True)
    algorithm, policy = agent.training.algorithms[0], agent.policy
    assert algorithm == stormpg.make_algorithm("gpomdp", eta=0.02, S0=7)
    assert algorithm.settings["S0"] == 7
    assert policy.policy.mean.sizes == (4, 8, 4, 1)
    np.testing.assert_allclose(policy.policy.sigma, 0.5)
    assert Agent("cartpole-continuous", "gpomdp", policy="gaussian-linear", sigma=0.3).policy.mean.feature_dim == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": "storm-pg", "et": 0.1}, "Agent has no setting 'et': did you mean 'eta'"),
        ({"alpha": 0.1}, r"It is a setting of storm-pg, .* and \d others: name the algorithm"),
        ({"sigm": 0.1}, "did you mean 'sigma'"),
        ({"env": "cartpole", "sigma": 0.1}, "Agent has no setting 'sigma'"),
        ({"algorithm": ALGORITHM, "eta": 0.1}, "eta was given beside an algorithm that is made already"),
        ({"policy": stormpg.gaussian_mlp(4, 1), "sigma": 0.1}, "sigma was given beside a policy that is made already"),
        ({"policy": "MlpPolicy"}, r"policy is 'MlpPolicy'; expected one of the kinds of policy_for \(gaussian-mlp, "),
        ({"policy": 3}, "policy is 3; expected a policy, such as policy_for"),
        ({"algorithm": "ppo"}, "unknown algorithm 'ppo'"),
        ({"algorithm": "storm-pg", "eta": "fast"}, "eta is 'fast'; expected a number"),
        ({"seed": -1}, "seed is -1; expected a whole number from 0"),
        ({"seed": 1.5}, r"seed is 1\.5; expected a whole number"),
        ({"horizon": True}, "horizon is True; expected a whole number"),
        ({"env": "CartPole-v1"}, "it is a Gymnasium environment, use 'gym:CartPole-v1'"),
        ({"env": "cart-pole"}, "did you mean 'cartpole'"),
    ],
)
def test_what_an_agent_does_not_take(arguments, words):
    with pytest.raises(InputError, match=words):
        Agent(**{"env": "cartpole-continuous", **arguments})


def test_numpys_integers_are_integers():
    number, settings = np.int64, {"S0": np.int64(4), "B": np.int32(2), "eta": np.float32(0.01)}
    agent = Agent("cartpole-continuous", "storm-pg", seed=number(3), horizon=number(10), **settings)
    same = Agent("cartpole-continuous", stormpg.storm_pg(S0=4, B=2), seed=3, horizon=10)
    jax.tree.map(np.testing.assert_array_equal, agent.params, same.params)
    assert agent.evaluate(number(3), seed=number(1)).returns.tolist() == same.evaluate(3, seed=1).returns.tolist()
    for bad in (0, 2.5, "many"):
        with pytest.raises(InputError, match="episodes is"):
            agent.evaluate(bad)


def test_another_environment_of_the_same_spaces(tmp_path):
    agent = small("cartpole").learn(6)
    agent.set_env("gym:CartPole-v1").learn(4)
    assert agent.result.columns["trajectories"].tolist() == [4, 6, 8, 10]
    assert agent.env.name == agent.result.env.name == "gym:CartPole-v1"
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").env.name == "gym:CartPole-v1"
    for other, words in (
        ("acrobot", r"acrobot has observations in Box\(shape=\(6,\).*; expected Box\(shape=\(4,\)"),
        ("cartpole-continuous", "cartpole-continuous has actions in Box"),
    ):
        with pytest.raises(InputError, match=words):
            agent.set_env(other)
    with pytest.raises(InputError, match=r"has actions from \[-2\.0\] to \[2\.0\]; expected \[-5\.0\] to \[5\.0\]"):
        Agent(lambda **_: RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-5), np.float32(5))).set_env("pendulum")


def test_an_algorithm_of_ones_own_needs_to_be_given_again(tmp_path):
    """An algorithm whose optimiser is a function cannot be rebuilt from its saved description."""
    own = stormpg.storm_pg(S0=4, B=2, optimizer=optax.sgd)
    agent = Agent("cartpole-continuous", own, horizon=10).learn(8)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", algorithm=own)
    jax.tree.map(np.testing.assert_array_equal, loaded.learn(4).params, agent.learn(4).params)


def test_predicted_actions_are_the_environments(tmp_path):
    env = gymnasium.make("Pendulum-v1")
    agent = small(env)
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.predict(observation))
    assert env.action_space.contains(agent.predict(observation, deterministic=True))


def test_saved_and_loaded_in_a_new_process(tmp_path):
    agent = small("gym:CartPole-v1", policy=stormpg.policy_for(stormpg.make("gym:CartPole-v1"), normalise=True)).learn(12)
    agent.save(tmp_path / "agent")
    agent.save(tmp_path / "agent")  # replaces the first one
    # The noise of `predict` starts from the beginning in a loaded agent.
    assert Agent.load(tmp_path / "agent").predict(np.zeros((9, 4))).tolist() == agent.predict(np.zeros((9, 4))).tolist()
    code = (
        "import numpy as np, stormpg; agent = stormpg.Agent.load('agent');"
        "print(agent.predict(np.full((3, 4), 0.1), deterministic=True).tolist(), agent.evaluate(3, seed=1).returns.tolist());"
        "agent.learn(4); print(agent.result.columns['trajectories'].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    here = agent.predict(np.full((3, 4), 0.1), deterministic=True).tolist(), agent.evaluate(3, seed=1).returns.tolist()
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
    (actions,) = session.run(["action"], {"observation": observations})
    np.testing.assert_allclose(actions, agent.predict(observations, deterministic=True), rtol=1e-5, atol=1e-6)


def test_a_policy_of_ones_own_needs_to_be_given_again(tmp_path):
    own = stormpg.gaussian((lambda key: jax.numpy.zeros(4), lambda p, obs: (p * obs).sum()[None]), 1)
    agent = small(policy=own).learn(6)
    agent.save(tmp_path / "agent")
    with pytest.raises(InputError, match="a policy of its user's own"):
        Agent.load(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", policy=own)
    np.testing.assert_allclose(loaded.predict(np.ones(4), deterministic=True), agent.predict(np.ones(4), deterministic=True))
