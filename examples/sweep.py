"""Train STORM-PG with twelve settings, ten seeds each, as one compiled batch."""

import itertools

import stormpg

grid = list(itertools.product((0.003, 0.01, 0.03), (0.1, 0.5, 0.9, 1.0)))
algorithms = [stormpg.storm_pg(eta=eta, alpha=alpha) for eta, alpha in grid]
result = stormpg.train("cartpole-continuous", algorithms, trajectories=200, seeds=10)
for (eta, alpha), final in zip(grid, result.final_return(), strict=True):
    print(f"eta {eta:<6} alpha {alpha:<4} mean {final.mean():6.1f}   worst seed {final.min():6.1f}")
