"""A run's folder: config.json, metrics.parquet, state.safetensors, policy.safetensors, summary.json.

Nothing in it is executable: JSON, Parquet and safetensors. Every file is written beside its name and then renamed, so
that a reader never sees half of one.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.envs import make
from stormpg.errors import InputError, choose
from stormpg.policies import describe_policy, policy_for
from stormpg.records import Tree

FORMAT = 1
ITERATES = ("last", "uniform", "best")
FILES = ("config.json", "metrics.parquet", "state.safetensors", "policy.safetensors", "summary.json")


def prepare(folder: str | os.PathLike[str]) -> Path:
    """Check that a run can be written here, before anything is computed. An empty or missing folder is fine."""
    path = Path(folder)
    held = [name for name in FILES if (path / name).exists()] if path.is_dir() else []
    if held:
        raise InputError(f"{path} already holds a run ({held[0]}): give another folder, or delete that one.")
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: {parent} is not a folder one may write to. Give another folder.")
    return path


def save(result: Any, folder: str | os.PathLike[str]) -> Path:
    """Write a `Result` to a folder."""
    import polars

    path = prepare(folder)
    path.mkdir(parents=True, exist_ok=True)
    iterates = {"last": result.states.params, "uniform": result.states.uniform, "best": result.states.best}
    _write(path / "config.json", _json(describe(result)))
    _write(path / "metrics.parquet", lambda file: polars.DataFrame(dict(result.columns)).write_parquet(file))
    _write(path / "state.safetensors", lambda file: save_tree(result.states, file))
    _write(path / "policy.safetensors", lambda file: save_tree(iterates, file))
    _write(path / "summary.json", _json(summary(result)))
    return path


def describe(result: Any) -> dict[str, Any]:
    """Everything that was resolved, with the versions and the device that ran it."""
    import optax

    from stormpg import __version__

    return {
        "format": FORMAT,
        "env": result.env.name,
        "env_settings": dict(result.env.settings),
        "algorithm": result.algorithms[0].name,
        "settings": [plain(a.settings) for a in result.algorithms],
        "policies": [describe_policy(policy) for policy in result.policies],
        "trajectories": result.trajectories,
        "seeds": list(result.seeds),
        "horizon": result.horizon,
        "versions": {
            "stormpg": __version__,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "optax": optax.__version__,
            "numpy": np.__version__,
        },
        "device": f"{jax.default_backend()}: {jax.devices()[0].device_kind}",
    }


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON holds them."""
    return {
        k: v if isinstance(v, int | float | str) else float(v) if hasattr(v, "dtype") else str(v) for k, v in settings.items()
    }


def summary(result: Any) -> dict[str, Any]:
    """The end of the run in a few numbers, over all seeds."""
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
        "final_window": 50,
        "diverged": [int(x) for x in diverged.sum(axis=1)],
    }


def _last_rows(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The position of each run's last row; the table is run after run."""
    follows = np.append(columns["iteration"][1:], 0)
    return np.nonzero(follows == 0)[0]


def save_tree(tree: Tree, file: Path) -> None:
    """A pytree of arrays as safetensors, each leaf under its path; a random key as its words."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(_words(leaf)) for name, leaf in _named(tree)}, file)


def load_tree(like: Tree, file: str | os.PathLike[str]) -> Tree:
    """The pytree saved in a file, with the structure of `like`, whose leaves need only shape and dtype."""
    from safetensors.numpy import load_file

    stored, leaves = load_file(file), []
    for name, leaf in _named(like):
        expected = jax.eval_shape(_words, leaf)
        if name not in stored or stored[name].shape != expected.shape or stored[name].dtype != expected.dtype:
            found = f"{stored[name].dtype}{list(stored[name].shape)}" if name in stored else "nothing"
            raise InputError(f"{file} holds {found} under {name!r}; expected {expected.dtype}{list(expected.shape)}.")
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        words = jnp.asarray(stored[name])
        leaves.append(jax.random.wrap_key_data(words) if is_key else words)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(tree: Tree) -> list[tuple[str, Any]]:
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _words(leaf: Any) -> Any:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _json(content: Any) -> Any:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return lambda file: Path(file).write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """JSON, whole or not at all."""
    _write(path, _json(content))


def write_text(path: Path, text: str) -> None:
    """Text, whole or not at all."""
    _write(path, lambda file: Path(file).write_text(text, encoding="utf-8"))


def _write(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.part")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The config.json of a run's folder."""
    file = Path(folder) / "config.json"
    if not file.is_file():
        raise InputError(f"{folder} holds no run: there is no config.json in it. Give the folder of `stormpg train --out`.")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not JSON ({error}): the run cannot be read.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(f"{file} has not the format {FORMAT} that this version reads.")
    return config


def read_metrics(folder: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The columns of a run's metrics.parquet."""
    import polars

    return {column.name: column.to_numpy() for column in polars.read_parquet(Path(folder) / "metrics.parquet")}


class Run:
    """A run read back from its folder: the environment, the policies and their parameters."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.config = read_config(folder)
        self.env = make(self.config["env"], **self.config["env_settings"])
        self.seeds, self.horizon = self.config["seeds"], self.config["horizon"]
        if None in self.config["policies"]:
            raise InputError(f"the run in {folder} has a policy of its user's own, which cannot be rebuilt from the folder.")
        self.policies = [policy_for(self.env, **_tuples(about)) for about in self.config["policies"]]
        one = jax.eval_shape(self.policies[0].init, jax.random.key(0))
        runs = len(self.seeds) * len(self.policies)
        many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((runs, *x.shape), x.dtype), one)
        self.stored = load_tree({name: many for name in ITERATES}, Path(folder) / "policy.safetensors")

    def iterates(self, which: str) -> Iterator[tuple[int, int, Tree]]:
        """(setting, seed, ξ) of every run, for "last", "uniform" or "best"."""
        chosen = self.stored[choose("iterate", which, ITERATES)]
        for run in range(len(self.seeds) * len(self.policies)):
            yield run // len(self.seeds), self.seeds[run % len(self.seeds)], jax.tree.map(lambda x, run=run: x[run], chosen)


def _tuples(about: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in about.items()}
