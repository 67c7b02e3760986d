"""A custom training loop with `jax.vmap` over eight seeds and `jax.jit`, and an algorithm with a custom tracker."""

import jax
import jax.numpy as jnp
from jax import Array

import stormpg
from stormpg import Algorithm, Sample, Tracked, estimators, schedules, steps
from stormpg.pytrees import add, as_float, norm, record


@record
class HeavyBall:
    """g_t = α d(ξ_t) + (1 − α) g_{t−1}: STORM-PG without its correction."""

    alpha: Array

    def init(self, params, blank):
        return jax.tree.map(jnp.zeros_like, params)

    def wants(self, here, memory):
        return (Sample(here.n),)

    def track(self, here, batches, memory):
        d = here.estimate(here.params, batches[0]).gradient
        g = d if here.large else add(memory, add(d, memory, -1.0), self.alpha)
        return Tracked(g, g, batches[0], info={"estimate_norm": norm(d)})


env = stormpg.make("cartpole-continuous")
policy = stormpg.policy_for(env)
algorithm = Algorithm(estimators.gpomdp(0.99), HeavyBall(as_float(0.5)), schedules.once(10, 5), steps.optax_step(0.01))

states = jax.vmap(lambda seed: stormpg.init(env, policy, algorithm, seed))(jnp.arange(8))
step = jax.jit(jax.vmap(lambda state: stormpg.step(env, policy, algorithm, state)))
for iteration in range(100):
    states, info = step(states)
    if iteration % 20 == 0:
        size = info.info["estimate_norm"].mean()
        print(f"{int(states.trajectories[0]):4d} trajectories: return {info.mean_return.mean():5.1f}, ‖d‖ {size:.3g}")
print(f"mean return at the end, all seeds: {info.mean_return.mean():.1f}")
