"""A run's folder: config.json, metrics.parquet, state.safetensors, policy.safetensors, summary.json.

During training it contains checkpoints instead of the last four. summary.json is written last, so a run that has one is
complete.
"""

import functools
import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import ALGORITHMS, Algorithm, make_algorithm
from stormpg.engine.iteration import Setup, State
from stormpg.engine.iteration import begin as begin_state
from stormpg.envs import as_environment
from stormpg.envs.from_files import from_file
from stormpg.errors import InputError, choose, legible
from stormpg.files import FORMAT, fill, load_tree, read_tensors, save_tree, write_json
from stormpg.machine.blocks import devices
from stormpg.policies.descriptions import describe_policy, from_description
from stormpg.pytrees import Tree, traceable
from stormpg.runs import parquet
from stormpg.runs.checkpoints import upgraded
from stormpg.runs.config import policy_settings
from stormpg.runs.config import read_config as read_config  # callers use it from here
from stormpg.runs.identity import identity, name_of
from stormpg.runs.table import WINDOW
from stormpg.version import __version__

FUNCTION = "function"  # the key for the name of a setting that is a function
ITERATES = ("last", "uniform", "best")
FILES = ("config.json", "metrics.parquet", "state.safetensors", "policy.safetensors", "summary.json")


def prepare(folder: str | os.PathLike[str]) -> Path:
    """Check that a run can be written to a folder, before anything is computed. The folder may be empty or missing."""
    path = Path(folder)
    held = [name for name in FILES if (path / name).exists()] if path.is_dir() else []
    if held:
        raise InputError(f"{path} already holds a run ({held[0]}): give another folder, or delete that one.")
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: {parent} is not a writable folder. Give another folder.")
    return path


def begin(config: Mapping[str, Any], folder: str | os.PathLike[str]) -> Path:
    """Write the config of a run that is about to start, in a folder that holds no other run."""
    path = prepare(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "config.json", config)
    return path


def save(result: Any, folder: str | os.PathLike[str]) -> Path:
    """Write a `Result` to a new folder, or to the folder that `begin` prepared for it."""
    path = Path(folder)
    if is_whole(path):
        prepare(path)
    if not (path / "config.json").exists():
        begin(describe(result, result.trajectories), path)
    iterates = {"last": result.states.params, "uniform": result.states.uniform, "best": result.states.best}
    checksum = parquet.write_metrics(result.columns, path / parquet.FILE)
    save_tree(result.states, path / "state.safetensors")
    save_tree(iterates, path / "policy.safetensors")
    write_json(path / parquet.SUMMARY, summary(result) | {parquet.CHECKSUM: checksum})
    return path


def describe(training: Any, trajectories: int, block: int | None = None, steps: int | None = None) -> dict[str, Any]:
    """All resolved settings of a run, with the versions and the device it runs on.

    `block`: the number of runs that are computed together, which affects the last bits of the results. `steps`: the budget of
    steps.
    """
    import optax

    where = devices()[0]
    return {
        "format": FORMAT,
        "env": training.env.name,
        "env_settings": dict(training.env.settings),
        "algorithm": training.algorithms[0].name,
        "settings": [plain(a.settings) for a in training.algorithms],
        "policies": [describe_policy(policy) for policy in training.policies],
        "trajectories": trajectories,
        "steps": steps,
        "seeds": list(training.seeds),
        "horizon": training.horizon,
        "block": block,
        "identity": identity(training),
        "versions": {
            "stormpg": __version__,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "optax": optax.__version__,
            "numpy": np.__version__,
        },
        "device": f"{where.platform}: {where.device_kind}",
    }


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose settings include the defaults of settings that the algorithm did not have when it was written."""
    if config["algorithm"] not in ALGORITHMS:
        return dict(config)
    defaults = plain(make_algorithm(config["algorithm"]).settings)
    return {**config, "settings": [settings and {**defaults, **settings} for settings in config["settings"]]}


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings to JSON types. Of a function only the name is stored, so it cannot be restored from a file."""

    def as_plain(value: Any) -> Any:
        if isinstance(value, int | float | str):
            return value
        return float(value) if hasattr(value, "dtype") else {FUNCTION: name_of(value)}

    return {name: as_plain(value) for name, value in settings.items()}


def summary(result: Any) -> dict[str, Any]:
    """A summary of the final results over all seeds."""
    final = result.final_return()
    diverged = np.asarray(result.states.diverged).reshape(final.shape)
    return {
        "env": result.env.name,
        "algorithm": result.algorithms[0].name,
        "trajectories": int(result.columns["trajectories"].max()),
        "environment_steps": int(np.asarray(result.columns["steps"])[_last_rows(result.columns)].sum()),
        "seeds": len(result.seeds),
        "final_return_mean": [float(x) for x in final.mean(axis=1)],
        "final_return_worst": [float(x) for x in final.min(axis=1)],
        "final_window": WINDOW,
        "diverged": [int(x) for x in diverged.sum(axis=1)],
    }


def _last_rows(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The position of the last row of each run. The table lists the runs one after another."""
    follows = np.append(columns["iteration"][1:], 0)
    return np.nonzero(follows == 0)[0]


def finished(training: Any, folder: Path) -> Any:
    """Load the `Result` of a completed run of this training."""
    run = Run(folder, training.env, training.policies[0])
    states, table = run.end(training.policies[0], training.algorithms[0])
    return training.result(run.config["trajectories"], table, states)


def is_whole(folder: str | os.PathLike[str]) -> bool:
    """Whether the run in a folder is complete."""
    return (Path(folder) / "summary.json").exists()


def read_metrics(folder: str | os.PathLike[str], config: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    """Read the columns of a run's metrics.parquet. `config`: the run's config, if it has already been read."""
    return parquet.read_metrics(Path(folder), read_config(folder) if config is None else config)


class Run:
    """A run loaded from its folder: the environment, the policies and their parameters.

    `env`, `policy` and `algorithm` are needed if they are custom and cannot be rebuilt from the folder.
    """

    def __init__(
        self, folder: str | os.PathLike[str], env: Any = None, policy: Any = None, algorithm: Algorithm | None = None
    ) -> None:
        self.folder, self.config, self.algorithm = Path(folder), read_config(folder), algorithm
        about, file = self.config, self.folder / "config.json"
        self.env = from_file(about["env"], about["env_settings"], file) if env is None else as_environment(env)
        self.seeds, self.horizon = about["seeds"], about["horizon"]
        if None in about["policies"] and policy is None:
            raise InputError(f"the run in {folder} has a policy of its user's own, which cannot be rebuilt from the folder.")
        inputs = math.prod(getattr(self.env.observation_space, "shape", ()))
        with legible(str(file)):
            self.policies = [
                from_description(self.env, policy_settings(one, inputs, file)) if policy is None else policy
                for one in about["policies"]
            ]

    def algorithms(self) -> list[Algorithm]:
        """The algorithms described in the folder. Raises InputError if one uses a custom function or is custom."""
        if self.algorithm is not None:
            return [self.algorithm] * len(self.config["settings"])
        for settings in self.config["settings"]:
            for name, value in settings.items():
                if isinstance(value, Mapping):
                    raise InputError(
                        f"the run in {self.folder} has {name} = {str(value.get(FUNCTION))[:80]}, a function, which cannot be "
                        "restored from the folder: pass the algorithm again in Python (algorithm=)."
                    )
        if not all(self.config["settings"]) or self.config["algorithm"] == "custom":
            raise InputError(
                f"the run in {self.folder} has an algorithm of its user's own: pass it again in Python (algorithm=)."
            )
        with legible(str(self.folder / "config.json")):
            return [make_algorithm(self.config["algorithm"], **settings) for settings in self.config["settings"]]

    def arguments(self) -> dict[str, Any]:
        """The arguments of `train` that resume the run."""
        return {
            "env": self.env,
            "algorithm": self.algorithms(),
            "trajectories": self.config["trajectories"],
            "steps": self.config.get("steps"),
            "seeds": self.seeds,
            "horizon": self.horizon,
            "policy": self.policies,
        }

    def iterates(self, which: str) -> Iterator[tuple[int, int, Tree]]:
        """Yield (setting, seed, ξ) for every run, where `which` is "last", "uniform" or "best"."""
        one = jax.eval_shape(self.policies[0].init, jax.random.key(0))
        runs = len(self.seeds) * len(self.policies)
        many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((runs, *x.shape), x.dtype), one)
        stored = load_tree({name: many for name in ITERATES}, self.folder / "policy.safetensors")
        chosen = stored[choose("iterate", which, ITERATES)]
        for run in range(runs):
            yield run // len(self.seeds), self.seeds[run % len(self.seeds)], jax.tree.map(lambda x, run=run: x[run], chosen)

    def end(self, policy: Any, algorithm: Algorithm) -> tuple[State, dict[str, np.ndarray]]:
        """The final states and the table of all runs. `policy` and `algorithm` determine the shapes of the states."""
        runs = (len(self.seeds) * len(self.config["settings"]),)
        setup = Setup(self.env, self.horizon, traceable(policy), algorithm)
        one = jax.eval_shape(functools.partial(begin_state, setup), jnp.asarray(0, jnp.int32))
        many = jax.tree.map(lambda x: jax.ShapeDtypeStruct(runs + x.shape, x.dtype), one)
        table, file = read_metrics(self.folder, self.config), self.folder / "state.safetensors"
        taken = np.asarray(table["steps"])[_last_rows(table)]
        return fill(many, upgraded(read_tensors(file)[0], taken, many), file), table

    def first(self) -> tuple[State, dict[str, np.ndarray]]:
        """The state and the table of the first setting's first seed."""
        states, table = self.end(self.policies[0], self.algorithms()[0])
        mine = (table["setting"] == 0) & (table["seed"] == self.seeds[0])
        return jax.tree.map(lambda x: x[:1], states), {name: column[mine] for name, column in table.items()}
