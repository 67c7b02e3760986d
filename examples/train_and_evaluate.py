"""Train STORM-PG on Cart-Pole with eight seeds, then evaluate the output iterate of Algorithm 1."""

import stormpg

env = stormpg.make("cartpole-continuous")
result = stormpg.train(env, stormpg.storm_pg(eta=0.01, alpha=0.9, S0=10, B=5), trajectories=300, seeds=8)
print(f"mean return over the last 50 trajectories, all seeds: {result.final_return().mean():.1f} of {env.horizon}")

policy = result.policies[0]
played = stormpg.evaluate(env, policy, result.params("uniform", seed=3), episodes=50)
print(f"mean return of an iterate drawn uniformly, seed 3: {played.returns.mean():.1f}")
