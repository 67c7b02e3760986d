"""Variance-reduced policy gradients: STORM-PG, every algorithm that its paper compares, and a contract for more.

What is below is public. An algorithm is a row of four parts: `estimators`, `trackers`, `schedules`, `steps`; `contract` says
how they talk to each other, and `pytrees` makes a class of one's own a part that can be traced.
"""

from stormpg import algorithms, contract, estimators, policies, pytrees, schedules, steps, testing, trackers
from stormpg.agent import Agent
from stormpg.algorithms import (
    ALGORITHMS,
    Algorithm,
    algorithm,
    gpomdp,
    make_algorithm,
    pgt,
    reinforce,
    srvr_pg,
    storm_pg,
    svrpg,
    svrpo,
    window_npg,
)
from stormpg.contract import Here, Sample, Tracked
from stormpg.engine.iteration import State
from stormpg.engine.metrics import Row
from stormpg.envs import ENVIRONMENTS, Box, Discrete, Environment, MultiDiscrete, OutsideEnvironment, make
from stormpg.errors import EnvironmentFailure, InputError, StormpgWarning
from stormpg.estimators import Estimator, gradient
from stormpg.evaluate import Evaluation, evaluate
from stormpg.machine.xla import fast_loops
from stormpg.own_loop import init, step
from stormpg.policies import (
    Policy,
    categorical,
    categorical_mlp,
    gaussian,
    gaussian_linear,
    gaussian_mlp,
    multi_categorical,
    multi_categorical_mlp,
    policy_for,
    softmax_table,
)
from stormpg.runs.result import Progress, Result
from stormpg.sampling import rollout
from stormpg.train import load, resume, train
from stormpg.trajectories import Batch, Trajectories
from stormpg.version import __version__

__all__ = [
    "ALGORITHMS",
    "ENVIRONMENTS",
    "Agent",
    "Algorithm",
    "Batch",
    "Box",
    "Discrete",
    "Environment",
    "EnvironmentFailure",
    "Estimator",
    "Evaluation",
    "Here",
    "InputError",
    "MultiDiscrete",
    "OutsideEnvironment",
    "Policy",
    "Progress",
    "Result",
    "Row",
    "Sample",
    "State",
    "StormpgWarning",
    "Tracked",
    "Trajectories",
    "__version__",
    "algorithm",
    "algorithms",
    "categorical",
    "categorical_mlp",
    "contract",
    "estimators",
    "evaluate",
    "fast_loops",
    "gaussian",
    "gaussian_linear",
    "gaussian_mlp",
    "gpomdp",
    "gradient",
    "init",
    "load",
    "make",
    "make_algorithm",
    "multi_categorical",
    "multi_categorical_mlp",
    "pgt",
    "policies",
    "policy_for",
    "pytrees",
    "reinforce",
    "resume",
    "rollout",
    "schedules",
    "softmax_table",
    "srvr_pg",
    "step",
    "steps",
    "storm_pg",
    "svrpg",
    "svrpo",
    "testing",
    "trackers",
    "train",
    "window_npg",
]
