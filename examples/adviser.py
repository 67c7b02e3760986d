"""Ask the adviser: settings for STORM-PG from a pilot batch, then a training with them."""

import stormpg
from stormpg.theory import advice

env = stormpg.make("cartpole-continuous")
found = advice.pilot(env, stormpg.policy_for(env), gamma=0.99, n=50, horizon=env.horizon)
settings = advice.in_practice(found)
print(f"Var d = {found.sigma2:.3g}, |grad L|^2 = {found.signal:.3g}, over one step Var w = {found.phi2:.3g}")
print("settings:", settings)

result = stormpg.train(env, stormpg.make_algorithm("storm-pg", **settings), trajectories=200, seeds=4)
print(f"mean return of the last batches: {result.columns['return'][-1]:.1f}")
