"""Compare two algorithms on the same seeds and the same budget, with confidence intervals over seeds."""

import stormpg
from stormpg import statistics

finals = {
    name: stormpg.train("cartpole-continuous", name, trajectories=300, seeds=12).final_return()[0]
    for name in ("gpomdp", "storm-pg")
}
for name, values in finals.items():
    found = statistics.interval(values, statistics.iqm)
    print(
        f"{name:9} IQM {found.estimate:5.1f}, 95 % interval {found.low:.1f} to {found.high:.1f}, worst seed {values.min():.1f}"
    )
better = statistics.probability_of_improvement(finals["storm-pg"], finals["gpomdp"])
print(f"probability that storm-pg beats gpomdp: {better.estimate:.2f}, 95 % interval {better.low:.2f} to {better.high:.2f}")
