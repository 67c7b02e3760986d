"""Packs: trials of one shape, run as one compiled batch up to a rung, and later continued from there.

The state of a paused pack is passed on as bytes, so that any worker can continue it. On CPUs the runs are cut into the same
blocks for any number of cores, so the results do not depend on where a pack ran.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg import files
from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.engine.budget import Budget
from stormpg.envs import make
from stormpg.errors import InputError
from stormpg.machine.blocks import RUNS_IN_A_BLOCK
from stormpg.policies.constructors import policy_for
from stormpg.runs.options import POLICY_OPTIONS, policy_settings
from stormpg.runs.result import Result
from stormpg.runs.table import Columns
from stormpg.runs.training import RunOptions, Training
from stormpg.studies.work_units import split_settings
from stormpg.train import check_budget, check_training
from stormpg.tune.plan import Problem
from stormpg.tune.space import Space, ends

RUNS = 64  # in a pack at most, on CPUs: four blocks, enough for two cores, few enough that a cluster has several packs
NEEDED = ("setting", "seed", "iteration", "trajectories", "steps", "return")  # columns needed to continue and to judge a trial


class Found(NamedTuple):
    """The results of a pack; one entry for each trial."""

    values: list[float]  # by the objective
    so_far: list[float]  # scores, by which unfinished trials are compared
    diverged: list[int]  # numbers of seeds
    reached: bytes  # the state to continue from


def parted(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the algorithm, and those of the policy as `policy_for` takes them."""
    return {name: value for name, value in settings.items() if name not in POLICY_OPTIONS}, policy_settings(settings)


def trial(problem: Problem, settings: Mapping[str, Any]) -> tuple[Algorithm, Any]:
    """The algorithm and the policy of a trial; InputError if it cannot be run."""
    own, policy = parted(settings)
    algorithm = make_algorithm(problem.algorithm, **own)
    check_budget(algorithm.schedule.S0, problem.trajectories)
    return algorithm, policy_for(make(problem.env), **policy)


def check(problem: Problem, default: Mapping[str, Any], space: Space) -> None:
    """InputError if the default setting cannot be run, alone or with one value replaced by an end of the space."""
    algorithm, policy = trial(problem, default)
    check_training(make(problem.env), [algorithm], [policy], list(problem.seeds), problem.horizon)
    for name, values in space.items():
        for value in ends(values):
            try:
                trial(problem, {**default, name: value})
            except InputError as error:
                raise InputError(f"the space has {name} = {value!r}, which cannot be run: {error}") from None


def packed(problem: Problem, trials: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The numbers of the trials in each pack. The trials of a pack have one shape, so they share a compiled program."""
    shapes: dict[Any, list[int]] = {}
    for number, settings in enumerate(trials):
        algorithm, policy = trial(problem, settings)
        shapes.setdefault(jax.tree.structure((policy, algorithm)), []).append(number)
    most = max(RUNS // len(problem.seeds), 1) if jax.default_backend() == "cpu" else len(trials)
    return [same[first : first + most] for same in shapes.values() for first in range(0, len(same), most)]


def run_pack(
    problem: Problem, trials: Sequence[Mapping[str, Any]], pause: int | None, before: bytes | None, kept: Sequence[int]
) -> Found:
    """Run trials of one shape until `pause` trajectories.

    before    the state of a paused pack to continue from; None: start
    kept      the places of the trials in that pack
    """
    algorithms, policies = (list(part) for part in zip(*(trial(problem, settings) for settings in trials), strict=True))
    training = check_training(make(problem.env), algorithms, policies, list(problem.seeds), problem.horizon)
    reached = None if before is None else unpacked(training, problem, before, kept)
    compiled = jax.default_backend() == "cpu" and training.env.in_jax
    block = RUNS_IN_A_BLOCK if compiled else None
    result = training.run(Budget(problem.trajectories), RunOptions(block=block, before=reached, pause=pause))
    tables = split_settings({name: result.columns[name] for name in NEEDED}, len(trials))
    diverged = np.asarray(result.states.diverged).reshape(len(trials), -1).sum(axis=1)
    return Found(
        [problem.objective.value(table, problem.trajectories) for table in tables],
        [problem.objective.on_the_way(table) for table in tables],
        [int(count) for count in diverged],
        b"" if pause is None else as_bytes(result.states, result.columns),
    )


def as_bytes(states: Any, columns: Columns) -> bytes:
    """The state and the table of a paused pack."""
    tensors = {f"states/{name}": leaf for name, leaf in files.leaves(states)}
    tensors |= {f"columns/{name}": np.ascontiguousarray(columns[name]) for name in NEEDED}
    return files.tensor_bytes(tensors, {"kind": "stormpg pack"})


def unpacked(training: Training, problem: Problem, content: bytes, kept: Sequence[int]) -> Result:
    """The `Result` of the trials `kept` of a paused pack."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reached"
        file.write_bytes(content)
        tensors, _ = files.read_tensors(file)
    seeds, columns = len(problem.seeds), below("columns/", tensors)
    runs = (np.asarray(kept)[:, None] * seeds + np.arange(seeds)).ravel()
    states = {name: leaf[runs] for name, leaf in below("states/", tensors).items()}
    tables = split_settings(columns, int(columns["setting"].max()) + 1)
    chosen = [{**tables[old], "setting": np.full_like(tables[old]["setting"], new)} for new, old in enumerate(kept)]
    table = {name: np.concatenate([one[name] for one in chosen]) for name in NEEDED}
    return training.result(problem.trajectories, table, files.fill(training.shapes(), states, "a pack"), complete=False)


def below(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors whose names start with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
