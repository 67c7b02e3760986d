"""A custom algorithm: the GPOMDP estimator, the STORM tracker, a large batch and ten small ones in turn, plain ascent."""

import stormpg
from stormpg import Algorithm, algorithm, schedules, steps, testing, trackers


@algorithm("restarted-storm")
def restarted_storm(
    eta: float = 0.001, alpha: float = 0.5, S0: int = 20, B: int = 5, m: int = 10, gamma: float = 0.99
) -> Algorithm:
    """STORM-PG that restarts with a large batch after every m small ones."""
    return Algorithm(
        stormpg.estimators.gpomdp(gamma),
        trackers.storm(alpha),
        schedules.every(m, S0, B),
        steps.optax_step(eta, "sgd"),
    )


testing.check_algorithm(restarted_storm())
result = stormpg.train("cartpole-continuous", restarted_storm(), trajectories=1000, seeds=8)
print(f"mean return at the end, all seeds: {result.final_return().mean():.1f}")
