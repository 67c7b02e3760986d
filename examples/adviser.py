"""Get settings for STORM-PG from the adviser, which uses a pilot batch, then train with them."""

import stormpg
from stormpg.theory import advice

env = stormpg.make("cartpole-continuous")
found = advice.pilot(env, stormpg.policy_for(env), gamma=0.99, n=50, horizon=env.horizon)
settings = advice.in_practice(found)
print(f"Var d = {found.sigma2:.3g}, |grad L|^2 = {found.signal:.3g}, Var w over one step = {found.phi2:.3g}")
print("settings:", settings)

result = stormpg.train(env, stormpg.make_algorithm("storm-pg", **settings), trajectories=200, seeds=4)
print(f"mean return over the last 50 trajectories, all seeds: {result.final_return().mean():.1f}")
