"""Variance-reduced policy gradients: STORM-PG, and every algorithm that its paper compares."""

from stormpg import algorithms, estimators, schedules, steps, trackers
from stormpg.agent import Agent
from stormpg.algorithms import ALGORITHMS, Algorithm, algorithm, make_algorithm, srvr_pg, storm_pg, svrpg, svrpo
from stormpg.envs import ENVIRONMENTS, Environment, OutsideEnvironment, make
from stormpg.errors import EnvironmentFailure, InputError, StormpgWarning
from stormpg.estimators import gpomdp, gradient, pgt, reinforce
from stormpg.evaluate import evaluate
from stormpg.machine.xla import fast_loops
from stormpg.policies.constructors import (
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
from stormpg.runs.result import Result
from stormpg.sampling import rollout
from stormpg.train import train
from stormpg.trajectories import Trajectories

__version__ = "0.1.0"
