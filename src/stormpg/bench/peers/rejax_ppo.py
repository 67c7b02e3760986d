"""rejax's PPO: gymnax's CartPole, one hidden layer of 64 tanh units, 10 environments x 100 steps per batch.

    python rejax_ppo.py SECONDS

Environment and training are one compiled program, as in this library, so this is the closest peer. PPO makes several passes
over each batch: the epochs are rejax's default (8). Its default of 16 minibatches does not divide a batch of 1000 steps, so
there are 10, which is faster. Evaluations during training are turned off. One seed; the first call compiles and is not timed.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import gymnax
import jax
from rejax import PPO

ENVIRONMENTS, STEPS, HORIZON, MINIBATCHES = 10, 100, 100, 10
BATCHES_A_CALL = 50


def main(seconds: str = "5") -> None:
    jax.config.update("jax_platforms", "cpu")
    env, params = gymnax.make("CartPole-v1")
    steps_a_call = BATCHES_A_CALL * ENVIRONMENTS * STEPS
    algorithm = PPO.create(
        env=env,
        env_params=params.replace(max_steps_in_episode=HORIZON),
        agent_kwargs={"hidden_layer_sizes": (64,), "activation": "tanh"},
        num_envs=ENVIRONMENTS,
        num_steps=STEPS,
        num_minibatches=MINIBATCHES,
        total_timesteps=steps_a_call,
        eval_freq=steps_a_call,
        skip_initial_evaluation=True,
    )
    evaluate = algorithm.eval_callback
    algorithm = algorithm.replace(eval_callback=lambda *_: ())

    @jax.jit
    def train(state: Any) -> Any:
        return algorithm.train(train_state=state)[0]

    state = jax.block_until_ready(train(jax.jit(algorithm.init_state)(jax.random.key(0))))
    state = jax.block_until_ready(train(state))  # the first call's result may have other types than the initial state
    before, start = int(state.global_step), time.perf_counter()
    while (taken := time.perf_counter() - start) < float(seconds):
        state = jax.block_until_ready(train(state))
    steps = int(state.global_step) - before

    lengths, _ = evaluate(algorithm, state, jax.random.key(1))
    result = {
        "steps_per_second": steps / taken,
        "peer": "rejax PPO",
        "version": ", ".join(f"{name} {version(name)}" for name in ("rejax", "gymnax", "jax", "flax", "optax")),
        "setting": f"actor 4-64-2 and critic 4-64-1, tanh, {ENVIRONMENTS} environments x {STEPS} steps a batch, "
        f"{algorithm.num_epochs} epochs x {algorithm.num_minibatches} minibatches, no evaluations; "
        f"at the end episodes of {lengths.mean():.0f} steps of at most {HORIZON}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
