"""Train on a Gymnasium environment, save the agent, load it in a new process, and play one episode."""

import subprocess
import sys
import tempfile

import stormpg

PLAY = """
import gymnasium, stormpg
agent, env = stormpg.Agent.load("agent"), gymnasium.make("CartPole-v1")
(observation, _), total, over = env.reset(seed=1), 0.0, False
while not over:
    observation, reward, terminated, truncated, _ = env.step(agent.predict(observation, deterministic=True))
    total, over = total + reward, terminated or truncated
print(f"one episode: {total:.0f} steps upright")
"""
with tempfile.TemporaryDirectory() as folder:
    stormpg.Agent("gym:CartPole-v1").learn(trajectories=150).save(f"{folder}/agent")
    print(subprocess.run([sys.executable, "-c", PLAY], cwd=folder, check=True, capture_output=True, text=True).stdout)
