"""This library's default algorithm on a Gymnasium task: what one seed learns, and its CPU time.

    python stormpg_learning.py ENV STEPS SEED

Prints one JSON line, as `sb3_learning.py` does. The CPU seconds include compilation.
"""

import json
import sys
import time

EPISODES = 20


def main(env: str, steps: str, seed: str) -> None:
    began = time.process_time()
    import stormpg

    agent = stormpg.Agent(f"gym:{env}", seed=int(seed))
    agent.learn(steps=int(steps))
    cpu = time.process_time() - began
    returns = {
        name: agent.evaluate(EPISODES, deterministic, seed=10_000 + int(seed)).returns.tolist()
        for name, deterministic in (("sampled", False), ("mode", True))
    }
    taken = int(agent.result.states.steps[0]) if agent.result else 0
    print(json.dumps({**returns, "cpu_seconds": cpu, "steps": taken, "version": f"stormpg {stormpg.__version__}"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
