"""The commands list and doctor."""

import importlib.metadata
import inspect
import platform
from typing import Any

import jax

from stormpg.algorithms import ALGORITHMS
from stormpg.algorithms.settings import SETTINGS
from stormpg.cli.base import ABOUT, Json, app, finish
from stormpg.envs import ENVIRONMENTS, Discrete, make
from stormpg.errors import InputError
from stormpg.machine.xla import in_force
from stormpg.report.terminal import out, table


@app.command("list", rich_help_panel=ABOUT)
def list_command(as_json: Json = False) -> None:
    """List the environments, the algorithms with their settings, and what the settings mean."""
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
    table("Settings", ("name", "meaning"), [[name, setting.text] for name, setting in SETTINGS.items()])
    finish(as_json, {"environments": list(environments), "algorithms": algorithms})


def describe_space(space: Any) -> str:
    """A space in a few words."""
    return f"{space.n} choices" if isinstance(space, Discrete) else f"{'×'.join(map(str, space.shape))} numbers"


@app.command("doctor", rich_help_panel=ABOUT)
def doctor_command(as_json: Json = False) -> None:
    """Show versions and devices, and which packages are missing."""
    required = ("jax", "jaxlib", "optax", "numpy", "safetensors", "polars", "filelock", "rich", "typer", "tomli-w")
    optional = {
        "scipy": "studies and reports",
        "matplotlib": "figures",
        "plotly": "pages of reports",
        "pillow": "films",
        "gymnasium": "environments outside JAX",
        "equinox": "custom networks as modules",
        "box2d": "rllab's physics engine",
        "mujoco": "Gymnasium's MuJoCo environments",
        "gymnax": "gymnax: environments",
        "brax": "brax: environments",
        "imageio-ffmpeg": "videos as MP4",
        "tensorboardX": "--log tensorboard",
        "wandb": "--log wandb",
        "mlflow": "--log mlflow",
        "onnx": "exporting policies",
        "optuna": "tune",
        "optuna-dashboard": "tune --dashboard",
        "psycopg": "searches in PostgreSQL",
        "ray": "--workers ray and --rollout-workers",
    }
    found = {name: version_of(name) for name in (*required, *optional)}
    rows = [["python", platform.python_version(), "required"]]
    rows += [[name, found[name] or "missing", "required"] for name in required]
    rows += [[name, found[name] or "missing", f"optional: {use}"] for name, use in optional.items()]
    table("Packages", ("package", "version", ""), rows)
    devices = [[str(d.id), d.platform, d.device_kind] for d in jax.devices()]
    table("Devices", ("number", "platform", "kind"), devices)
    missing = [name for name in required if found[name] is None]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}. Install with: pip install {' '.join(missing)}")
    fast = in_force()
    states = {True: "in effect", False: "unknown to this version of XLA, not used"}
    table("Compilation", ("option", ""), [[name, states[bool(good)]] for name, good in fast.items()])
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    cached = f"cached in {folder}" if folder else "not cached"
    out.print(f"All required packages are installed. Compiled programs are {cached}.", highlight=False)
    finish(as_json, {"versions": found, "devices": [d.device_kind for d in jax.devices()], "compilation": fast})


def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
