"""The commands list and doctor."""

import importlib.metadata
import inspect
import platform
from typing import Any

import jax

from stormpg.algorithms import ALGORITHMS
from stormpg.algorithms.registry import defaults_of
from stormpg.algorithms.settings import SETTINGS
from stormpg.cli.base import Json, command, finish
from stormpg.cli.help import ABOUT
from stormpg.envs import ENVIRONMENTS, Discrete, make
from stormpg.errors import InputError
from stormpg.kernels import libraries
from stormpg.machine.xla import in_force
from stormpg.report.terminal import out, table
from stormpg.runs.options import listed


@command("list", ABOUT)
def list_command(as_json: Json = False) -> None:
    """List environments, algorithms, and what their settings mean."""
    environments = {name: make(name) for name in ENVIRONMENTS}
    algorithms = {name: defaults_of(constructor) for name, constructor in ALGORITHMS.items()}
    spaces = [
        [name, describe_space(env.observation_space), describe_space(env.action_space), str(env.horizon)]
        for name, env in environments.items()
    ]
    table("Environments", ("name", "observations", "actions", "horizon"), spaces)
    rows = [
        [name, (inspect.getdoc(ALGORITHMS[name]) or "").splitlines()[0], listed(settings)]
        for name, settings in algorithms.items()
    ]
    table("Algorithms", ("name", "what it does", "settings and their defaults"), rows)
    meanings = [[name, one.text, one.allowed.text if one.allowed else ""] for name, one in SETTINGS.items()]
    table("Settings", ("name", "meaning", "allowed"), meanings)
    finish(as_json, {"environments": list(environments), "algorithms": algorithms})


def describe_space(space: Any) -> str:
    """A space in a few words."""
    if isinstance(space, Discrete):
        return f"{space.n} choices"
    return "1 number" if space.shape == (1,) else f"{'×'.join(map(str, space.shape))} numbers"


@command("doctor", ABOUT)
def doctor_command(as_json: Json = False) -> None:
    """Show versions and devices, and which packages are missing."""
    base = ("jax", "jaxlib", "optax", "numpy", "safetensors", "polars", "filelock")
    required = (*base, "rich", "typer", "tomli-w")
    optional = {
        "scipy": "studies and reports",
        "matplotlib": "figures",
        "pillow": "films",
        "gymnasium": "environments outside JAX",
        "pygame": "films of Gymnasium's environments",
        "optuna": "tune",
        "box2d": "stormpg[box2d]: rllab's physics engine",
        "brax": "stormpg[brax]: environments",
        "envpool": "stormpg[envpool]: environments",
        "equinox": "networks of your own as modules",
        "gymnax": "stormpg[gymnax]: environments",
        "imageio-ffmpeg": "stormpg[video]: films as MP4",
        "mlflow": "stormpg[mlflow]: --log mlflow",
        "mujoco": "stormpg[mujoco]: Gymnasium's MuJoCo environments",
        "onnx": "stormpg[onnx]: exporting policies",
        "optuna-dashboard": "stormpg[dashboard]: tune --dashboard",
        "psycopg": "stormpg[postgresql]: searches in PostgreSQL",
        "ray": "stormpg[ray]: --workers, --rollout-workers",
        "tensorboardX": "stormpg[tensorboard]: --log tensorboard",
        "wandb": "stormpg[wandb]: --log wandb",
    }
    found = {name: version_of(name) for name in (*required, *optional)}
    rows = [["python", platform.python_version(), "everything"]]
    rows += [[name, found[name] or "missing", "everything" if name in base else "the command"] for name in required]
    rows += [[name, found[name] or "–", use] for name, use in optional.items()]
    table("Packages", ("package", "version", "needed for"), rows)
    devices = [[str(d.id), d.platform, d.device_kind] for d in jax.devices()]
    table("Devices", ("number", "platform", "kind"), devices)
    missing = [name for name in required if found[name] is None]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}. Install with: pip install {' '.join(missing)}")
    fast = in_force()
    states = {True: "in effect", False: "unknown to this version of XLA, not used"}
    compiler = libraries.compiler()
    kernels = (
        f"built with {compiler}" if compiler else "no C compiler was found (CC, gcc, clang): plain JAX is used, which is slower"
    )
    options = [[name, states[bool(good)]] for name, good in fast.items()]
    table("Compilation", ("option", ""), [*options, ["kernels on a CPU", kernels]])
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    cached = f"cached in {folder}" if folder else "not cached"
    out.print(f"All required packages are installed. Compiled programs are {cached}.", highlight=False)
    finish(
        as_json,
        {
            "versions": found,
            "devices": [d.device_kind for d in jax.devices()],
            "compilation": {**fast, "kernels on a CPU": compiler is not None},
        },
    )


def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
