"""PPO in plain JAX, compiled as a whole, in the style of PureJaxRL: gymnax's CartPole, one hidden layer of 64 tanh units.

    python ppo_jax.py SECONDS

Rollouts, generalised advantages and updates are one `lax.scan` in one compiled program. A batch is 10 environments x 100
steps, trained on for 4 epochs of 4 minibatches with the clipped objective. So PPO does more work per step than a policy
gradient, which makes one update per batch. Actor and critic are separate networks. The first calls compile and are not timed.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import optax
from jax import Array

jax.config.update("jax_platforms", "cpu")
ENVIRONMENTS, STEPS, HORIZON, BATCHES_A_CALL, EPOCHS, MINIBATCHES = 10, 100, 100, 50, 4, 4
DISCOUNT, TRACE, CLIP = 0.99, 0.95, 0.2
ENV = gymnax.make("CartPole-v1")[0]
PARAMS = ENV.default_params.replace(max_steps_in_episode=HORIZON)
OPTIMISER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))

Network = tuple[Array, Array, Array, Array]  # weights and biases of the two layers
Batch = tuple[Array, ...]
Carry = tuple[Any, ...]  # networks, optimiser state, environment states, observations


def apply(net: Network, x: Array) -> Array:
    return jnp.tanh(x @ net[0] + net[1]) @ net[2] + net[3]


def network(key: Array, outputs: int) -> Network:
    wide, narrow = (jax.nn.initializers.orthogonal(scale) for scale in (2**0.5, 0.01))
    return wide(key, (4, 64)), jnp.zeros(64), narrow(jax.random.fold_in(key, 1), (64, outputs)), jnp.zeros(outputs)


def loss(nets: dict[str, Network], batch: Batch) -> Array:
    observations, actions, old, gains, targets = batch
    logs = jax.nn.log_softmax(apply(nets["actor"], observations))
    ratio = jnp.exp(jnp.take_along_axis(logs, actions[:, None], 1)[:, 0] - old)
    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
    objective = jnp.minimum(ratio * gains, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gains).mean()
    error = jnp.square(apply(nets["critic"], observations)[:, 0] - targets).mean()
    return 0.5 * error - objective + 0.01 * (jnp.exp(logs) * logs).sum(-1).mean()  # the last term: minus the entropy


def update(carry: Carry, key: Array) -> tuple[Carry, Array]:
    """Train on one batch: a rollout, its advantages, and all epochs over it. Also returns how many episodes ended."""
    nets, memory, *start = carry

    def act(carry: Carry, key: Array) -> tuple[Carry, Batch]:
        states, observations = carry
        logs = jax.nn.log_softmax(apply(nets["actor"], observations))
        keys = jax.random.split(key, 1 + ENVIRONMENTS)
        actions = jax.random.categorical(keys[0], logs)
        after, states, rewards, dones, _ = jax.vmap(ENV.step, (0, 0, 0, None))(keys[1:], states, actions, PARAMS)
        return (states, after), (observations, actions, jnp.take_along_axis(logs, actions[:, None], 1)[:, 0], rewards, dones)

    def back(gain: Array, step: Batch) -> tuple[Array, Array]:
        value, following, reward, done = step
        gain = reward + (1 - done) * DISCOUNT * (following + TRACE * gain) - value
        return gain, gain

    def descend(carry: Carry, batch: Batch) -> tuple[Carry, None]:
        changes, memory = OPTIMISER.update(jax.grad(loss)(carry[0], batch), carry[1])
        return (optax.apply_updates(carry[0], changes), memory), None

    def epoch(carry: Carry, key: Array) -> tuple[Carry, None]:
        order = jax.random.permutation(key, ENVIRONMENTS * STEPS).reshape(MINIBATCHES, -1)
        return jax.lax.scan(descend, carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order], batch))

    keys = jax.random.split(key, STEPS + EPOCHS)
    (states, last), (observations, actions, logs, rewards, dones) = jax.lax.scan(act, tuple(start), keys[:STEPS])
    values = apply(nets["critic"], jnp.concatenate([observations, last[None]]))[..., 0]
    _, gains = jax.lax.scan(back, jnp.zeros(ENVIRONMENTS), (values[:-1], values[1:], rewards, dones), reverse=True)
    batch = (observations, actions, logs, gains, gains + values[:-1])
    (nets, memory), _ = jax.lax.scan(epoch, (nets, memory), keys[STEPS:])
    return (nets, memory, states, last), dones.sum()


def main(seconds: str = "5") -> None:
    train = jax.jit(lambda carry, key: jax.lax.scan(update, carry, jax.random.split(key, BATCHES_A_CALL)))
    keys = jax.random.split(jax.random.key(0), 3 + ENVIRONMENTS)
    nets = {"actor": network(keys[0], 2), "critic": network(keys[1], 1)}
    observations, states = jax.vmap(ENV.reset, (0, None))(keys[3:], PARAMS)
    carry, calls = (nets, OPTIMISER.init(nets), states, observations), 0
    for _ in range(2):  # twice: the result may have other types than the initial state, which compiles again
        carry, _ = jax.block_until_ready(train(carry, keys[2]))
    start = time.perf_counter()
    while (taken := time.perf_counter() - start) < float(seconds):
        carry, ended = jax.block_until_ready(train(carry, jax.random.fold_in(keys[2], calls)))
        calls += 1
    steps = BATCHES_A_CALL * ENVIRONMENTS * STEPS
    setting = f"actor 4-64-2 and critic 4-64-1, tanh, {ENVIRONMENTS} environments x {STEPS} steps a batch, {EPOCHS} epochs x "
    setting += f"{MINIBATCHES} minibatches; at the end episodes of {steps / ended.sum():.0f} steps of at most {HORIZON}"
    result = {"steps_per_second": calls * steps / taken, "peer": "PPO by hand in JAX, in the manner of PureJaxRL"}
    result["version"] = ", ".join(f"{name} {version(name)}" for name in ("jax", "optax", "gymnax"))
    print(json.dumps({**result, "setting": setting}))


if __name__ == "__main__":
    main(*sys.argv[1:])
