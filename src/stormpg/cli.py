"""The command `stormpg`: list, train, evaluate, reproduce, doctor."""

import importlib.metadata
import inspect
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

from stormpg import store
from stormpg.algorithms import ALGORITHMS
from stormpg.envs import ENVIRONMENTS, Discrete, make
from stormpg.errors import InputError
from stormpg.evaluate import evaluate as play
from stormpg.experiments import reproduction
from stormpg.options import POLICY_OPTIONS, Job, algorithm_options
from stormpg.store import ITERATES
from stormpg.terminal import err, out, progress_bar, table
from stormpg.train import train as run_training

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Variance-reduced policy gradients.", rich_markup_mode=None)

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print a last line in JSON.")]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file of defaults; its keys are the flags' names.")]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each setting of the algorithms and policies; they arrive as its `settings`."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[bool | None if kind is bool else str | None, flag(name, kind, setting_help(name))],
        )
        for name, kind in (algorithm_options() | POLICY_OPTIONS).items()
    ]

    def command(**arguments: Any) -> None:
        settings = {p.name: arguments.pop(p.name) for p in more}
        function(**arguments, **settings)

    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def flag(name: str, kind: type, text: str) -> Any:
    """An option whose text `options` reads, so that a wrong value gets the message a wrong argument gets."""
    metavar = None if kind is bool else {float: "NUMBER", int: "INTEGER"}.get(kind, "NAME")
    return typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=metavar, show_default=False)


def setting_help(name: str) -> str:
    """Which algorithms have a setting."""
    users = [a for a, make in ALGORITHMS.items() if name in inspect.signature(make).parameters]
    return "a setting of the policy" if not users else "all algorithms" if len(users) == len(ALGORITHMS) else ", ".join(users)


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


@app.command("train")
@with_settings
def train_command(
    env: Annotated[str | None, typer.Argument(help="The environment, see `stormpg list`.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="See `stormpg list`. [storm-pg]")] = None,
    trajectories: Annotated[str | None, flag("trajectories", int, "Budget, large batches included. [4000]")] = None,
    seeds: Annotated[str | None, flag("seeds", int, "How many. [30]")] = None,
    seed: Annotated[str | None, flag("seed", int, "The first one. [0]")] = None,
    horizon: Annotated[str | None, flag("horizon", int, "Steps of an episode; the environment's own by default.")] = None,
    config: Config = None,
    folder: Out = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train many seeds at once. Defaults for a pair of the paper are its Tables 2 and 3."""
    flags = {"env": env, "algorithm": algorithm, "trajectories": trajectories, "seeds": seeds, "seed": seed, "horizon": horizon}
    job = Job(flags | settings, config)
    with progress_bar(f"{job.algorithm.name} on {job.env.name}") as progress:
        result = run_training(
            job.env, job.algorithm, job.trajectories, job.seeds, job.seed, job.horizon, job.policy, folder, progress
        )
    end, summary = result.final_return()[0], store.summary(result)
    headings = ("algorithm", "seeds", "trajectories", "mean", "worst", "best", "diverged", "seconds")
    numbers = [str(len(end)), str(summary["trajectories"]), f"{end.mean():.2f}", f"{end.min():.2f}", f"{end.max():.2f}"]
    row = [job.algorithm.name, *numbers, str(summary["diverged"][0]), f"{result.seconds:.1f}"]
    table(
        job.env.name,
        headings,
        [row],
        "Undiscounted return over the last 50 trajectories: mean of all seeds, worst and best seed.",
    )
    if folder is not None:
        out.print(f"Written to {folder}", highlight=False)
    finish(as_json, summary)


@app.command("evaluate")
def evaluate_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    episodes: Annotated[int, typer.Option(min=1, help="For each seed.")] = 100,
    which: Annotated[str, typer.Option(help=f"The iterate: {', '.join(ITERATES)}.")] = "last",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Take the mode of the policy.")] = False,
    seed: Annotated[int, typer.Option(help="Of the episodes.")] = 0,
    as_json: Json = False,
) -> None:
    """Play fresh episodes with the policies of a run."""
    loaded = store.Run(run)
    means = np.array(
        [
            play(loaded.env, loaded.policies[setting], params, episodes, seed, deterministic, loaded.horizon).returns.mean()
            for setting, _, params in loaded.iterates(which)
        ]
    )
    row = [
        loaded.config["algorithm"],
        str(len(means)),
        str(episodes),
        f"{means.mean():.2f}",
        f"{means.min():.2f}",
        f"{means.max():.2f}",
    ]
    table(
        f"{loaded.env.name}, {which} iterate, {'mode' if deterministic else 'sampled'} actions",
        ("algorithm", "seeds", "episodes each", "mean return", "worst seed", "best seed"),
        [row],
    )
    finish(as_json, {"env": loaded.env.name, "which": which, "episodes": episodes, "return_by_seed": [float(m) for m in means]})


@app.command("reproduce")
def reproduce_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("results"),
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 30,
    trajectories: Annotated[int, typer.Option(min=25, help="Budget of each algorithm.")] = reproduction.TRAJECTORIES,
    as_json: Json = False,
) -> None:
    """The paper's first figure: four algorithms on Cart-Pole with its settings. A table here, a picture in the folder."""
    finish(as_json, reproduction.reproduce(folder, seeds, trajectories))


@app.command("doctor")
def doctor_command(as_json: Json = False) -> None:
    """Versions, devices, and what is missing."""
    needed = ("jax", "jaxlib", "optax", "numpy", "safetensors", "polars", "rich", "typer", "scipy", "matplotlib")
    optional = {
        "gymnasium": "environments outside JAX",
        "equinox": "your own networks as modules",
        "box2d": "rllab's real engine",
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
    out.print(f"All that is needed is here. Compiled programs are kept in {cache_folder()}.", highlight=False)
    finish(as_json, {"versions": found, "devices": [d.device_kind for d in jax.devices()]})


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def finish(as_json: bool, content: Any) -> None:
    """The machine-readable last line."""
    if as_json:
        print(json.dumps(content, default=str))


def cache_folder() -> Path:
    """Where compiled programs are kept between commands."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stormpg" / "programs"


def main() -> None:
    """Run the command; a mistake in the input is one line and exit code 2."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:  # unless the user has chosen one
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except InputError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the command-line parser raises has it
            raise
        fail(error.format_message())


def fail(message: str) -> None:
    err.print(f"stormpg: {' '.join(message.split())}", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
