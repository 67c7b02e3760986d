"""Stable-Baselines3 or sb3-contrib on a Gymnasium task: what one seed learns, and its CPU time.

    python sb3_learning.py KIND ENV STEPS SEED

KIND is PPO, A2C or TRPO at their defaults, those of `KIND("MlpPolicy", ENV)` with one environment; or zoo, which is PPO at
rl-zoo's settings. One thread. Prints one JSON line: the returns of 20 new episodes with sampled actions and with the mode, and
the CPU seconds of training.
"""
# mypy: disable-error-code="import-not-found"

import json
import sys
import time
from typing import Any

import gymnasium
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

EPISODES = 20
WIDE = {"pi": [256, 256], "vf": [256, 256]}
LUNAR = {"n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
# PPO's settings of rl-baselines3-zoo (hyperparams/ppo.yml), of the version of the task it lists. "linear" falls to 0.
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        **{"n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20},
        "linear": {"learning_rate": 1e-3, "clip_range": 0.2},
    },
    "Acrobot-v1": {"normalise": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4},
    "MountainCarContinuous-v0": {
        **{"normalise": True, "batch_size": 256, "n_steps": 8, "gamma": 0.9999, "learning_rate": 7.77e-5, "ent_coef": 0.00429},
        **{"clip_range": 0.1, "n_epochs": 10, "gae_lambda": 0.9, "max_grad_norm": 5, "vf_coef": 0.19, "use_sde": True},
        "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
    },
    "Pendulum-v1": {
        **{"n_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "learning_rate": 1e-3},
        **{"clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4},
    },
    "LunarLander-v3": LUNAR,
    "LunarLanderContinuous-v3": LUNAR,
    "InvertedPendulum-v5": {
        **{"normalise": True, "batch_size": 64, "n_steps": 32, "gamma": 0.999, "learning_rate": 2.22425e-4},
        **{"ent_coef": 1.37976e-7, "clip_range": 0.4, "n_epochs": 5, "gae_lambda": 0.9, "max_grad_norm": 0.3},
        "vf_coef": 0.19816,
    },
    "InvertedDoublePendulum-v5": {
        **{"normalise": True, "batch_size": 512, "n_steps": 128, "gamma": 0.98, "learning_rate": 1.55454e-4},
        **{"ent_coef": 1.05057e-6, "clip_range": 0.4, "n_epochs": 10, "gae_lambda": 0.8, "max_grad_norm": 0.5},
        "vf_coef": 0.695929,
    },
    "Reacher-v5": {
        **{"normalise": True, "batch_size": 32, "n_steps": 512, "gamma": 0.9, "learning_rate": 1.04019e-4},
        **{"ent_coef": 7.52585e-8, "clip_range": 0.3, "n_epochs": 5, "gae_lambda": 1.0, "max_grad_norm": 0.9},
        "vf_coef": 0.950368,
    },
    "Swimmer-v5": {
        **{"normalise": True, "n_envs": 4, "n_steps": 1024, "batch_size": 256, "gamma": 0.9999, "learning_rate": 6e-4},
        "gae_lambda": 0.98,
    },
    "Hopper-v5": {
        **{"normalise": True, "batch_size": 32, "n_steps": 512, "gamma": 0.999, "learning_rate": 9.80828e-5},
        **{"ent_coef": 0.00229519, "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7},
        **{"vf_coef": 0.835671, "relu": True, "policy_kwargs": {"log_std_init": -2, "ortho_init": False, "net_arch": WIDE}},
    },
    "HalfCheetah-v5": {
        **{"normalise": True, "batch_size": 64, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-5},
        **{"ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8},
        **{"vf_coef": 0.58096, "relu": True, "policy_kwargs": {"log_std_init": -2, "ortho_init": False, "net_arch": WIDE}},
    },
}


def model_of(kind: str, env: str, seed: int) -> Any:
    """The algorithm, and its environments."""
    settings = dict(ZOO[env]) if kind == "zoo" else {}
    envs = make_vec_env(env, settings.pop("n_envs", 1), seed=seed)
    if settings.pop("normalise", False):
        envs = VecNormalize(envs, gamma=settings.get("gamma", 0.99))
    for name, value in settings.pop("linear", {}).items():
        settings[name] = lambda left, value=value: left * value
    if settings.pop("relu", False):
        settings["policy_kwargs"] = {**settings["policy_kwargs"], "activation_fn": torch.nn.ReLU}
    algorithm = getattr(sb3_contrib if kind == "TRPO" else stable_baselines3, "PPO" if kind == "zoo" else kind)
    return algorithm("MlpPolicy", envs, seed=seed, device="cpu", **settings)


def fresh_environment(model: Any, env: str, seed: int) -> Any:
    """A new environment, with the observations that the policy was trained on and the task's own rewards."""
    new, trained = make_vec_env(env, 1, seed=10_000 + seed), model.get_vec_normalize_env()
    if trained is None:
        return new
    scaled = VecNormalize(new, training=False, norm_reward=False)
    scaled.obs_rms = trained.obs_rms
    return scaled


def main(kind: str, env: str, steps: str, seed: str) -> None:
    torch.set_num_threads(1)
    began = time.process_time()
    model = model_of(kind, env, int(seed))
    model.learn(int(steps))
    cpu = time.process_time() - began
    fresh, returns = fresh_environment(model, env, int(seed)), {}
    for name, deterministic in (("sampled", False), ("mode", True)):
        returns[name] = evaluate_policy(model, fresh, EPISODES, deterministic, return_episode_rewards=True)[0]
    modules = {"stable-baselines3": stable_baselines3, "sb3-contrib": sb3_contrib, "torch": torch, "gymnasium": gymnasium}
    versions = ", ".join(f"{name} {module.__version__}" for name, module in modules.items())
    print(json.dumps({**returns, "cpu_seconds": cpu, "steps": model.num_timesteps, "version": versions}))


if __name__ == "__main__":
    main(*sys.argv[1:])
