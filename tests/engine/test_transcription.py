"""The library gives the same iterates as the NumPy transcription of the paper, on fixed trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg.engine.iteration import Setup, begin, learn
from stormpg.scores import log_probs
from stormpg.trajectories import Batch, Trajectories
from tests.engine import transcription
from tests.engine.transcription import Tau

HORIZON, GAMMA, ETA = 7, 0.95, 0.003
S0, B, M = 5, 3, 3


def linear_policy():
    return stormpg.gaussian_linear(lambda s: s, 3, 2, sigma=transcription.SIGMA)


def batch_of(rng, n):
    return [Tau(rng.normal(size=(k, 3)), rng.normal(size=(k, 2)), rng.normal(size=k)) for k in rng.integers(2, HORIZON + 1, n)]


def padded(policy, batch, params):
    """The same trajectories in the library's format, with log-probabilities as if `params` had sampled them."""

    def pad(arrays):
        return jnp.asarray(np.stack([np.pad(x, [(0, HORIZON - len(x))] + [(0, 0)] * (x.ndim - 1)) for x in arrays]))

    s, a, r = (pad([getattr(tau, name) for tau in batch]) for name in ("s", "a", "r"))
    mask = pad([np.ones(len(tau.r)) for tau in batch])
    trajectories = Trajectories(s, a, r, mask, jnp.zeros_like(mask))
    return trajectories._replace(log_prob=log_probs(policy, params, trajectories))


CASES = {
    "storm-pg": (
        lambda: stormpg.storm_pg(eta=ETA, alpha=0.3, S0=S0, B=B, gamma=GAMMA, optimizer="sgd"),
        lambda xi, batches: transcription.storm_pg(xi, batches, ETA, 0.3, HORIZON, GAMMA),
        lambda t: t == 0,
    ),
    "svrpg": (
        lambda: stormpg.svrpg(eta=ETA, S0=S0, B=B, m=M, gamma=GAMMA, optimizer="sgd"),
        lambda xi, batches: transcription.svrpg(xi, batches, ETA, M, HORIZON, GAMMA),
        lambda t: t % (M + 1) == 0,
    ),
    "srvr-pg": (
        lambda: stormpg.srvr_pg(eta=ETA, S0=S0, B=B, m=M, gamma=GAMMA, optimizer="sgd"),
        lambda xi, batches: transcription.srvr_pg(xi, batches, ETA, M, HORIZON, GAMMA),
        lambda t: t % (M + 1) == 0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_follows_the_text_for_ten_iterations(float64, name):
    make, text, is_large = CASES[name]
    policy, algorithm = linear_policy(), make()
    rng = np.random.default_rng(5)
    xi = rng.normal(size=(3, 2))
    batches = [batch_of(rng, S0 if is_large(t) else B) for t in range(10)]
    setup = Setup(None, HORIZON, policy, algorithm)
    state = begin(setup, 0)._replace(params={"mean": jnp.asarray(xi)})
    step = jax.jit(lambda state, batch, large: learn(setup, state, large, (Batch(batch, state.params),)), static_argnums=2)
    moved = 0.0
    for t, expected in enumerate(text(xi, batches)):
        batch = padded(policy, batches[t], state.params)
        state, row = step(state, batch, is_large(t))
        np.testing.assert_allclose(state.params["mean"], expected, rtol=1e-11, atol=1e-11, err_msg=f"iteration {t}")
        assert bool(row.large) == is_large(t)
        moved = np.abs(expected - xi).max()
    assert t == 9
    assert moved > 0.05
