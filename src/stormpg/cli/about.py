"""What there is: list, doctor."""

import importlib.metadata
import inspect
import platform
from typing import Any

import jax

from stormpg.algorithms import ALGORITHMS
from stormpg.cli.base import Json, app, finish
from stormpg.envs import ENVIRONMENTS, Discrete, make
from stormpg.errors import InputError
from stormpg.machine.xla import in_force
from stormpg.report.terminal import out, table


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """The environments, and the algorithms with their settings."""
    environments = {name: make(name) for name in ENVIRONMENTS}
    algorithms = {
        name: {p.name: p.default for p in inspect.signature(make).parameters.values()} for name, make in ALGORITHMS.items()
    }
    spaces = [
        [name, describe_space(env.observation_space), describe_space(env.action_space), str(env.horizon)]
        for name, env in environments.items()
    ]
    table("Environments", ("name", "observations", "actions", "horizon"), spaces)
    rows = [
        [name, (inspect.getdoc(ALGORITHMS[name]) or "").splitlines()[0], " ".join(f"{k}={v}" for k, v in settings.items())]
        for name, settings in algorithms.items()
    ]
    table("Algorithms", ("name", "", "settings"), rows)
    finish(as_json, {"environments": list(environments), "algorithms": algorithms})


def describe_space(space: Any) -> str:
    return f"{space.n} choices" if isinstance(space, Discrete) else f"{'×'.join(map(str, space.shape))} numbers"


@app.command("doctor")
def doctor_command(as_json: Json = False) -> None:
    """Versions, devices, and what is missing."""
    needed = (
        "jax",
        "jaxlib",
        "optax",
        "numpy",
        "safetensors",
        "polars",
        "rich",
        "typer",
        "scipy",
        "matplotlib",
        "plotly",
        "pillow",
        "filelock",
        "tomli-w",
    )
    optional = {
        "gymnasium": "environments outside JAX",
        "equinox": "your own networks as modules",
        "box2d": "rllab's real engine",
        "mujoco": "Gymnasium's robots",
        "gymnax": "gymnax: environments",
        "brax": "brax: environments",
        "imageio-ffmpeg": "films as MP4",
        "tensorboardX": "--log tensorboard",
        "wandb": "--log wandb",
        "mlflow": "--log mlflow",
        "onnx": "export of policies",
        "optuna": "tune",
        "optuna-dashboard": "tune --dashboard",
        "psycopg": "searches in PostgreSQL",
        "ray": "--workers ray and --rollout-workers",
    }
    found = {name: version_of(name) for name in (*needed, *optional)}
    rows = [["python", platform.python_version(), "needed"]]
    rows += [[name, found[name] or "missing", "needed"] for name in needed]
    rows += [[name, found[name] or "missing", f"optional: {use}"] for name, use in optional.items()]
    table("Packages", ("package", "version", ""), rows)
    devices = [[str(d.id), d.platform, d.device_kind] for d in jax.devices()]
    table("Devices", ("number", "platform", "kind"), devices)
    missing = [name for name in needed if found[name] is None]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}. Install with: pip install {' '.join(missing)}")
    fast = in_force()
    told = lambda good: "in force" if good else "not known to this version of XLA, left out"
    table("Compilation", ("asked for", ""), [[name, told(good)] for name, good in fast.items()])
    kept = getattr(jax.config, "jax_compilation_cache_dir", None)
    where = f"kept in {kept}" if kept else "not kept"
    out.print(f"All that is needed is here. Compiled programs are {where}.", highlight=False)
    finish(as_json, {"versions": found, "devices": [d.device_kind for d in jax.devices()], "compilation": fast})


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
