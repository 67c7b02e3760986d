"""train(): budgets, seeds, batches of settings, divergence and the output iterate."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import schedules, trackers
from stormpg.algorithms import Algorithm
from stormpg.engine.budget import LIMIT, Budget
from stormpg.engine.compiled_loop import CompiledLoop, calls_a_library
from stormpg.engine.iteration import Setup, begin, learn
from stormpg.envs.base import Box, Environment
from stormpg.errors import InputError, StormpgWarning
from stormpg.machine import xla
from stormpg.machine.blocks import block_size, cut, in_blocks, together
from stormpg.pytrees import stack
from stormpg.runs.logs import Logger
from stormpg.runs.training import RunOptions
from stormpg.sampling import rollout
from stormpg.steps import optax_step
from stormpg.train import check_training
from stormpg.trajectories import Batch

ENV = "cartpole-continuous"
SMALL = stormpg.storm_pg(S0=4, B=2)


def per_seed(result, name):
    return result.columns[name].reshape(len(result.seeds), -1)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (SMALL, [4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (stormpg.svrpg(S0=6, B=3, m=2), [6, 9, 12, 18]),
        (stormpg.srvr_pg(S0=5, B=2, m=3), [5, 7, 9, 11, 16, 18, 20]),
        (stormpg.svrpo(S0=8, B=3, m=2), [8, 8, 8, 16, 16, 16]),
        (stormpg.make_algorithm("gpomdp", S0=7), [7, 14]),
    ],
    ids=lambda x: x.name if isinstance(x, Algorithm) else "",
)
def test_budget_is_exact(algorithm, expected):
    """Every batch is counted, including large ones, and a batch that would exceed the budget of 20 is not sampled."""
    result = stormpg.train(ENV, algorithm, trajectories=20, seeds=2, horizon=10)
    for counts in per_seed(result, "trajectories"):
        np.testing.assert_array_equal(counts, expected)
    assert (np.diff(per_seed(result, "steps"), axis=1) >= 0).all()
    assert (per_seed(result, "steps") <= 10 * per_seed(result, "trajectories")).all()


def test_metrics_have_the_public_columns():
    result = stormpg.train(ENV, SMALL, trajectories=10, seeds=[3, 9], horizon=10)
    table = result.metrics
    for name in ("env", "algorithm", "seed", "iteration", "trajectories", "steps", "return"):
        assert name in table.columns
    assert table["seed"].unique().sort().to_list() == [3, 9]
    assert table["algorithm"][0] == "storm-pg"
    assert (table["effective_sample_size"] <= 4.001).all()
    assert (table["weight_max"] >= table["weight_mean"] * 0.999).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpomdp", "svrpg", "srvr-pg", "storm-pg"])
def test_a_seed_alone_follows_itself_in_a_batch(name):
    """The random numbers are the same, so the first ten iterations agree up to rounding."""
    algorithm = stormpg.make_algorithm(name, S0=4, **({} if name == "gpomdp" else {"B": 3}))
    batch = stormpg.train(ENV, algorithm, trajectories=40, seeds=9, horizon=30)
    alone = stormpg.train(ENV, algorithm, trajectories=40, seeds=1, seed=7, horizon=30)
    for column in ("return", "steps", "gradient_norm"):
        together = batch.columns[column][batch.columns["seed"] == 7][:10]
        np.testing.assert_allclose(together, alone.columns[column][:10], rtol=2e-3, atol=1e-5)


def test_blocks_do_not_change_the_runs():
    """Runs split into blocks, with the last block padded, give the same results as runs in one block."""
    assert [block_size(runs, workers=2) for runs in (1, 5, 30, 256, 257)] == [1, 3, 15, 16, 15]

    for workers in (1, 2):
        blocks = cut(jnp.arange(7), block_size(7, workers))
        done = in_blocks(lambda number, blocks=blocks: blocks[number] * 2, len(blocks), workers)
        np.testing.assert_array_equal(together(done, 7), 2 * np.arange(7))


def test_a_program_that_calls_lapack_runs_on_one_thread():
    """Two threads that wait for LAPACK inside XLA may deadlock."""
    env, algorithm = stormpg.make(ENV), stack([SMALL, SMALL])
    usual = stormpg.policy_for(env)
    solving = stormpg.gaussian((lambda key: jnp.eye(4), lambda p, s: jnp.linalg.solve(p, s)[:1]), 1)
    assert not calls_a_library(CompiledLoop(env, 5).lowered(stack([usual, usual]), algorithm, np.arange(2)))
    assert calls_a_library(CompiledLoop(env, 5).lowered(stack([solving, solving]), algorithm, np.arange(2)))


@pytest.mark.slow
def test_float_settings_are_one_batch():
    """Algorithms that differ only in floats are trained together and compiled once, with the same results as alone."""
    etas, alphas = (0.001, 0.01, 0.05), (0.3, 0.9, 1.0)
    sweep = [stormpg.storm_pg(eta=e, alpha=a, S0=4, B=2, gamma=0.9) for e, a in zip(etas, alphas, strict=True)]
    together = stormpg.train(ENV, sweep, trajectories=20, seeds=2, horizon=15)
    assert set(together.columns["setting"]) == {0, 1, 2}
    for i, algorithm in enumerate(sweep):
        alone = stormpg.train(ENV, algorithm, trajectories=20, seeds=2, horizon=15)
        mine = together.columns["setting"] == i
        np.testing.assert_allclose(together.columns["return"][mine], alone.columns["return"], rtol=1e-3)
        for a, b in zip(jax.tree.leaves(together.params("last", 1, i)), jax.tree.leaves(alone.params("last", 1)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-3)
    with pytest.raises(InputError, match="differ in more than their float settings"):
        stormpg.train(ENV, [SMALL, stormpg.storm_pg(S0=5, B=2)], trajectories=20, seeds=1)


@pytest.mark.slow
def test_sigma_is_swept_with_a_list_of_policies():
    env = stormpg.make(ENV)
    policies = [stormpg.policy_for(env, sigma=s) for s in (0.1, 2.0)]
    result = stormpg.train(env, [SMALL, SMALL], trajectories=4, seeds=8, horizon=50, policy=policies)
    calm, wild = result.final_return()
    assert calm.mean() > wild.mean()


def test_another_float_compiles_nothing_anew():
    from stormpg.engine.compiled_loop import chunk

    stormpg.train(ENV, stormpg.storm_pg(eta=0.01, S0=4, B=2), trajectories=10, seeds=2, horizon=11)
    before = chunk.compiled
    stormpg.train(ENV, stormpg.storm_pg(eta=0.02, alpha=0.4, gamma=0.8, S0=4, B=2), trajectories=16, seeds=2, horizon=11)
    assert chunk.compiled == before


def trap() -> Environment:
    """An environment whose reward is infinite if the state is above a bound, which happens for some seeds only."""

    def reset(key):
        s = jax.random.uniform(key)
        return s, s[None]

    def step(key, state, action):
        return state, state[None], jnp.where(state > 0.97, jnp.inf, -(jnp.ravel(action)[0] ** 2)), jnp.zeros((), bool)

    return Environment("trap", reset, step, Box((1,)), Box((1,)), horizon=2)


@pytest.mark.slow
def test_a_diverged_seed_is_frozen_and_alone():
    algorithm = stormpg.make_algorithm("gpomdp", S0=4, baseline="none")
    with pytest.warns(StormpgWarning, match=r"^\d+ of 12 seeds of gpomdp on trap diverged.*: lower eta, or raise B\.$"):
        result = stormpg.train(trap(), algorithm, trajectories=40, seeds=12)
    diverged = per_seed(result, "diverged")
    hit, spared = diverged.any(axis=1), ~diverged.any(axis=1)
    assert hit.any()
    assert spared.any()
    np.testing.assert_array_equal(diverged, np.maximum.accumulate(diverged, axis=1))
    for leaf in jax.tree.leaves(result.states.params):
        assert np.isfinite(leaf).all()
    # A seed that did not diverge gives the same numbers as in a run by itself.
    lone = int(np.nonzero(spared)[0][0])
    alone = stormpg.train(trap(), result.algorithms[0], trajectories=40, seeds=[lone])
    np.testing.assert_allclose(per_seed(result, "return")[lone], alone.columns["return"], rtol=1e-3, atol=1e-5)
    # The trajectories of a frozen seed are still counted.
    assert (per_seed(result, "trajectories")[:, -1] == 40).all()


@pytest.mark.slow
def test_divergence_freezes_the_last_finite_state():
    env, algorithm = stormpg.make(ENV), stormpg.storm_pg(S0=3, B=2)
    policy = stormpg.policy_for(env)
    setup = Setup(env, 10, policy, algorithm)
    state = jax.jit(lambda seed: begin(setup, seed))(0)
    batch = jax.jit(lambda state: rollout(env, policy, state.params, jax.random.key(3), 3, 10))(state)
    large, small = (
        jax.jit(lambda state, batch, large=large: learn(setup, state, large, (Batch(batch, state.params),)))
        for large in (True, False)
    )
    state, _ = large(state, batch)
    broken = batch._replace(reward=batch.reward.at[0, 0].set(jnp.nan))
    after, row = small(state, broken)
    assert bool(row.diverged)
    jax.tree.map(
        np.testing.assert_array_equal, (after.params, after.memory, after.step), (state.params, state.memory, state.step)
    )
    later, row = small(after, batch)
    assert bool(row.diverged)
    jax.tree.map(np.testing.assert_array_equal, later.params, state.params)


def test_output_iterate_is_uniform():
    """Algorithm 1 returns each of ξ_0..ξ_{T−1} with the same probability: T = 5, 2000 seeds, a chi-squared test."""
    from scipy.stats import chisquare

    counting = Algorithm(
        stormpg.estimators.gpomdp(1.0), trackers.plain(), schedules.always(1), optax_step(1.0, lambda rate: _count())
    )
    env = Environment(
        "still", lambda key: (jnp.zeros(()), jnp.zeros(1)), lambda k, s, a: (s, jnp.zeros(1), jnp.ones(()), jnp.ones((), bool)),
        Box((1,)), Box((1,)), horizon=1,
    )  # fmt: skip
    policy = stormpg.gaussian_linear(lambda s: s, 1, 1)
    result = stormpg.train(env, counting, trajectories=5, seeds=2000, policy=policy)
    drawn = np.round(np.asarray(result.states.uniform["mean"])[:, 0, 0]).astype(int)
    assert chisquare(np.bincount(drawn, minlength=5)).pvalue > 1e-3
    np.testing.assert_allclose(result.states.params["mean"], 5.0)


def _count():
    """An "optimiser" that adds one in every step, so that ξ_t = t."""
    import optax

    return optax.GradientTransformation(lambda p: (), lambda g, s, p=None: (jax.tree.map(jnp.ones_like, g), s))


def test_best_and_last():
    result = stormpg.train(ENV, stormpg.storm_pg(), trajectories=200, seeds=2, horizon=50)
    assert (np.asarray(result.states.best_return) >= per_seed(result, "return").max(axis=1) - 1e-5).all()
    assert set(jax.tree.map(jnp.shape, result.params("best")).keys()) == {"mean"}
    with pytest.raises(InputError, match="unknown iterate"):
        result.params("first")


@pytest.mark.slow
def test_papinis_inner_loops_end_early():
    """The adaptive form takes between 1 and m small steps per epoch, differs between seeds, and respects the budget."""
    result = stormpg.train(
        ENV, stormpg.svrpg(adaptive=True, two_optimizers=True, S0=20, B=4, m=8), trajectories=400, seeds=4, horizon=50
    )
    for seed in result.seeds:
        large = result.columns["large"][result.columns["seed"] == seed]
        inner = np.diff(np.append(np.nonzero(large)[0], len(large))) - 1
        assert inner.max() <= 8
        assert inner[:-1].min() >= 1  # the budget may end the last epoch
    assert len({tuple(result.columns["large"][result.columns["seed"] == s]) for s in result.seeds}) > 1
    assert result.columns["trajectories"].max() <= 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": [1, 1]}, "different ones"),
        ({"horizon": 0}, "horizon is 0"),
        ({"trajectories": 3}, "first batch takes S0 = 4"),
        ({"trajectories": 0}, "trajectories is 0"),
        ({"policy": stormpg.categorical_mlp(4, 2)}, "use a Gaussian policy"),
        ({"env": "cartpole"}, None),
        ({"env": "cartpole", "policy": stormpg.gaussian_mlp(4, 1)}, "use a categorical policy"),
        ({"algorithm": "storm"}, "did you mean 'storm-pg'"),
        ({"algorithm": stormpg.estimators.gpomdp(0.99)}, "make_algorithm"),
    ],
)
def test_bad_arguments(arguments, message):
    call = {"env": ENV, "algorithm": SMALL, "trajectories": 4, "seeds": 1, "horizon": 5} | arguments
    if message is None:
        stormpg.train(**call)
        return
    with pytest.raises(InputError, match=message):
        stormpg.train(**call)


def test_an_option_xla_does_not_know_is_left_out():
    options = {"xla_backend_optimization_level": 0, "xla_no_such_option": 1}
    assert xla.Program(lambda x: x + 1, options, ())(1) == 2
    assert not xla.understood("xla_no_such_option", 1)


@pytest.mark.slow
def test_importing_changes_nothing_for_the_caller():
    """Importing changes no environment variable and no JAX setting, and does not start XLA."""
    program = (
        "import os, jax; before = dict(os.environ), dict(jax.config.values); import stormpg\n"
        "assert (dict(os.environ), dict(jax.config.values)) == before\n"
        "assert not jax._src.xla_bridge.backends_are_initialized()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", "--xla_force_host_platform_device_count=2"])
def test_fast_loops_are_asked_for_by_a_call(flags):
    """The user's flags are kept. After XLA has started, the call has no effect and returns False."""
    program = (
        "import os, stormpg; from stormpg.machine import xla\n"
        "late = os.environ.pop('LATE'); late == '1' and xla.understood('xla_backend_optimization_level', 0)\n"
        "assert stormpg.fast_loops() == (late == '0'), late\n"
        "assert os.environ.get('XLA_FLAGS', '').startswith(os.environ['GIVEN'])\n"
        "assert ('small_while_loop' in os.environ.get('XLA_FLAGS', '')) == (late == '0')"
    )
    given = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    given |= {"GIVEN": flags, **({"XLA_FLAGS": flags} if flags else {})}
    for late in ("0", "1"):
        subprocess.run([sys.executable, "-c", program], check=True, env={**given, "LATE": late})


@pytest.mark.slow
def test_all_cores_at_once_do_not_hang():
    """Runs in a separate process with the default XLA flags, so that it can be killed if it hangs. Takes some seconds."""
    program = (
        "import stormpg; train = lambda *a: stormpg.train('cartpole-continuous', *a, horizon=50).complete\n"
        "storm, pgt = stormpg.storm_pg(S0=10, B=5), stormpg.make_algorithm('pgt', baseline='value')\n"
        "print(train(storm, 60, 16) and train(storm, 60, 256) and train(pgt, 60, 16))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.slow
def test_a_thread_has_the_settings_of_its_caller():
    """All runs use float64, regardless of the number of blocks."""
    with jax.enable_x64(True):
        result = stormpg.train("pendulum", stormpg.storm_pg(S0=2, B=2), trajectories=4, seeds=3, horizon=3)
        assert {leaf.dtype for leaf in jax.tree.leaves(result.states.params)} == {jnp.dtype("float64")}
        assert result.columns["gradient_norm"].dtype == np.float64
    assert stormpg.train("pendulum", stormpg.storm_pg(S0=2, B=2), 4, 3, horizon=3).columns["return"].dtype == np.float32


@pytest.mark.parametrize("until", [None, 100])
def test_running_ahead_changes_nothing(monkeypatch, until):
    """Computing the next chunk while rows are read, as on a GPU, gives the same table, also for a run that is stopped.

    One seed only: with several blocks, the stopping point of each depends on which block was first.
    """
    go_on = None if until is None else lambda now: now.trajectories < until
    train = lambda: stormpg.train(ENV, SMALL, trajectories=2000, seeds=1, horizon=5, progress=go_on)
    plain = train()
    monkeypatch.setattr(CompiledLoop, "goes_ahead", property(lambda self: True))
    ahead = train()
    assert ahead.complete == plain.complete == (until is None)
    jax.tree.map(np.testing.assert_array_equal, ahead.states.trajectories, plain.states.trajectories)
    for name, column in plain.columns.items():
        np.testing.assert_array_equal(ahead.columns[name], column, name)


@pytest.mark.parametrize("name", ["storm-pg", "gpomdp", "svrpg"])
def test_a_pause_changes_nothing(name):
    """A run paused at the first unit after 30 trajectories and then continued equals the uninterrupted run."""
    env = stormpg.make("chain")
    settings = {"S0": 4, "B": 2, **({"m": 3} if name == "svrpg" else {})} if name != "gpomdp" else {"S0": 4}
    training = check_training(env, [stormpg.make_algorithm(name, **settings)], [stormpg.policy_for(env)], [0, 1, 2], 5)
    whole = training.run(Budget(100))
    part = training.run(Budget(100), RunOptions(pause=30))
    assert not part.complete
    assert 30 <= int(part.states.trajectories.min()) <= 30 + 10
    rest = training.run(Budget(100), RunOptions(before=part))
    assert rest.complete
    assert all((whole.columns[column] == rest.columns[column]).all() for column in whole.columns)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), whole.states.params, rest.states.params)
    assert all(jax.tree.leaves(same))


def test_the_first_batch_alone_is_reported(tmp_path):
    """A budget that holds only the first batch: progress and loggers see it, and no result is complete on the way."""
    seen, logged = [], []
    logger = Logger(lambda run, step, values: logged.append((run, step)), lambda: None)
    algorithm = stormpg.storm_pg(S0=10, B=5)
    result = stormpg.train(
        "chain", algorithm, trajectories=12, seeds=1, horizon=3, progress=lambda now: seen.append(now.result()), logs=[logger]
    )
    assert [len(one.columns["return"]) for one in seen] == [1]
    assert not seen[0].complete
    assert result.complete
    assert logged == [("seed-0", 10)]


def test_counts_do_not_overflow():
    """Steps are counted up to a limit, which does not end a run; trajectories near it do not wrap around."""
    state = type("Counts", (), {"trajectories": jnp.asarray(LIMIT - 3), "steps": jnp.asarray(LIMIT)})()
    assert bool(Budget().holds(state, 3))
    assert not bool(Budget().holds(state, 4))
    assert not bool(Budget(LIMIT, 5).holds(state, 1))
