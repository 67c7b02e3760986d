"""A custom loop with `init` and `step` gives the same results as `train`; `load` and `resume`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg

ROWS = [
    stormpg.gpomdp(S0=3),
    stormpg.storm_pg(S0=4, B=2),
    stormpg.svrpg(S0=4, B=2, m=2),
]
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ROWS, ids=lambda row: row.name)
def test_steps_are_those_of_train(algorithm, float64):
    env = stormpg.make("pendulum")
    policy = stormpg.policy_for(env, hidden=(8,))
    result = stormpg.train(env, algorithm, trajectories=20, seeds=1, policy=policy, horizon=6)
    state = stormpg.init(env, policy, algorithm, 0, horizon=6)
    step = jax.jit(lambda state: stormpg.step(env, policy, algorithm, state, horizon=6))
    for value in result.columns["return"]:
        state, info = step(state)
        close(info.mean_return, value)
        assert bool(info.live)
    jax.tree.map(close, state.params, result.params())
    assert int(state.trajectories) == result.columns["trajectories"][-1]


@pytest.mark.slow
def test_seeds_and_settings_are_mapped():
    """A batch of seeds, each with its own step size, gives the same results as each seed alone."""
    env = stormpg.make("pendulum")
    policy = stormpg.policy_for(env, hidden=(8,))

    def two_steps(eta, seed):
        algorithm = stormpg.storm_pg(eta=eta, S0=3, B=2)
        state = stormpg.init(env, policy, algorithm, seed, horizon=5)
        for _ in range(2):
            state, info = stormpg.step(env, policy, algorithm, state, horizon=5)
        return state.params, info.mean_return

    etas, seeds = jnp.array([0.01, 0.1]), jnp.array([3, 4])
    together = jax.jit(jax.vmap(two_steps))(etas, seeds)
    for i in range(2):
        jax.tree.map(close, jax.tree.map(lambda x, i=i: x[i], together), jax.jit(two_steps)(etas[i], seeds[i]))


@pytest.mark.slow
def test_outside_jax():
    pytest.importorskip("gymnasium")
    env, algorithm = stormpg.make("gym:Pendulum-v1"), stormpg.storm_pg(S0=4, B=2)
    policy = stormpg.policy_for(env)
    result = stormpg.train(env, algorithm, trajectories=8, seeds=1, horizon=6)
    state = stormpg.init(env, policy, algorithm, 0, horizon=6)
    for value in result.columns["return"]:
        state, info = stormpg.step(env, policy, algorithm, state, horizon=6)
        close(info.mean_return, value)


def same(one: stormpg.Result, other: stormpg.Result) -> None:
    for name in one.columns:
        np.testing.assert_array_equal(one.columns[name], other.columns[name], name)
    jax.tree.map(np.testing.assert_array_equal, one.params("best", 1), other.params("best", 1))


def test_load_and_resume(tmp_path):
    """A stopped run is loaded unchanged, and resuming it gives the same result as an uninterrupted run."""
    job = {"algorithm": stormpg.storm_pg(S0=4, B=2), "trajectories": 40, "seeds": 3, "horizon": 5}
    whole = stormpg.train("gym:Pendulum-v1", **job, out=tmp_path / "whole")
    same(stormpg.load(tmp_path / "whole"), whole)
    same(stormpg.resume(tmp_path / "whole"), whole)
    part = stormpg.train("gym:Pendulum-v1", **job, out=tmp_path / "part", progress=lambda now: False)
    loaded = stormpg.load(tmp_path / "part")
    assert not loaded.complete
    same(loaded, part)
    same(stormpg.resume(tmp_path / "part"), whole)
    with pytest.raises(stormpg.InputError, match="nowhere"):
        stormpg.load(tmp_path / "nowhere")
