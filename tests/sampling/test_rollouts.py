"""rollout() stops when all episodes have ended, which does not change the results."""

import jax
import numpy as np
import pytest

import stormpg
from stormpg import trajectories

ENV = stormpg.make("cartpole-continuous")
POLICY = stormpg.policy_for(ENV)
PARAMS = POLICY.init(jax.random.key(3))


@pytest.mark.parametrize("block", [1, 7, 20, 64])
def test_blocks_change_nothing(monkeypatch, block):
    """The steps are the same for every block size, including sizes that do not divide the horizon."""
    monkeypatch.setattr(trajectories, "BLOCK", 1000)
    plain = stormpg.rollout(ENV, POLICY, PARAMS, jax.random.key(0), 6, 100)
    monkeypatch.setattr(trajectories, "BLOCK", block)
    stopped = stormpg.rollout(ENV, POLICY, PARAMS, jax.random.key(0), 6, 100)
    assert plain.mask.sum(axis=1).max() < 80, "an episode is too long for this test"
    np.testing.assert_array_equal(plain.mask, stopped.mask)
    np.testing.assert_allclose(plain.reward, stopped.reward)
    for one, other in ((plain.observation, stopped.observation), (plain.action, stopped.action)):
        shown = plain.mask[..., None]
        np.testing.assert_allclose(shown * one, shown * other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain.log_prob, stopped.log_prob, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_mapped_rollouts_end_together(monkeypatch):
    monkeypatch.setattr(trajectories, "BLOCK", 16)
    keys = jax.random.split(jax.random.key(5), 4)
    roll = lambda key: stormpg.rollout(ENV, POLICY, PARAMS, key, 3, 100)
    mapped = jax.vmap(roll, axis_name="runs")(keys)
    monkeypatch.setattr(trajectories, "BLOCK", 1000)
    for i, key in enumerate(keys):
        alone = stormpg.rollout(ENV, POLICY, PARAMS, key, 3, 100)
        np.testing.assert_array_equal(alone.mask, mapped.mask[i])
        np.testing.assert_allclose(alone.reward, mapped.reward[i])
        np.testing.assert_allclose(alone.log_prob, mapped.log_prob[i], rtol=1e-4, atol=1e-5)
    assert (mapped.observation[:, :, 96:] == 0).all(), "steps were computed after the end of all episodes"
