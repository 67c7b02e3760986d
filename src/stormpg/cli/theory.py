"""The commands `theory all` (the laboratory) and `theory advise`."""

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpg.cli.base import Horizon, Json, ResultsFolder, Workers, app, command, finish, need, this_command, with_settings
from stormpg.cli.help import ABOUT, Commands
from stormpg.errors import InputError, choose
from stormpg.report.tables import SYMBOLS
from stormpg.report.terminal import out, table, unit_bar
from stormpg.runs.options import POLICY_OPTIONS, Job, write_toml
from stormpg.studies.study import ABOUT as DESCRIPTION
from stormpg.studies.workers import share_device, workers
from stormpg.studies.workspace import Workspace

if TYPE_CHECKING:
    from stormpg.theory.advice import Pilot
    from stormpg.theory.bounds import Constants, Prescription

theory = typer.Typer(cls=Commands, no_args_is_help=True, help="The paper's theory, checked and applied.")
app.add_typer(theory, name="theory", rich_help_panel=ABOUT)

VARIANTS = ("measured", "proved", "stated", "practical")


@command("all", group=theory)
def all_command(
    folder: ResultsFolder = Path("theory"),
    size: Annotated[str, typer.Option(help="small, default or large.")] = "default",
    where: Workers = None,
    as_json: Json = False,
) -> None:
    """Check lemmas, rates and tracking errors on exact problems: figures and a page."""
    need("report")
    from stormpg.theory import findings, laboratory

    share_device()
    wanted = laboratory.as_size(size)
    with workers(where) as those, unit_bar("theory") as progress:
        data = findings.report(Workspace(folder, progress, workers=those), wanted, [this_command()])
    show(data, folder, as_json)


def report(workspace: Workspace, about: dict[str, Any], as_json: bool) -> None:
    """Rebuild the report from the content of its folder."""
    from stormpg.theory import findings, laboratory

    size = laboratory.size_of(about, workspace.root / DESCRIPTION)
    names = [name for name, one in laboratory.SIZES.items() if one == size]
    again = [shlex.join(["stormpg", "theory", "all", "--size", name, "--out", str(workspace.root)]) for name in names]
    show(findings.report(workspace, size, [*again, this_command()]), workspace.root, as_json)


def show(data: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    """Print verdicts and the shorter tables, and where the files are."""
    columns = list(data["protocols"])
    rows = [[c["sentence"], *(verdict_cell(c["results"].get(key)) for key in columns)] for c in data["claims"]]
    table("Left side divided by right side", ("inequality", *(data["protocols"][key]["label"] for key in columns)), rows)
    slopes = next(t for t in data["tables"] if t["title"] == "Rates")
    table(slopes["caption"], slopes["heads"][:3], [row[:3] for row in slopes["rows"]])
    pays = next(t for t in data["tables"] if t["title"] == "Where variance reduction pays")
    out.print(pays["caption"] + ".", highlight=False)
    out.print(f"Open {folder / 'report.html'}; figures, tables.md and claims.json are in the same folder.", highlight=False)
    verdicts = {c["id"]: {key: r["verdict"] for key, r in c["results"].items() if r} for c in data["claims"]}
    finish(as_json, {"folder": str(folder), "claims": verdicts, "slopes": {row[0]: row[2] for row in slopes["rows"]}})


def verdict_cell(found: Mapping[str, Any] | None) -> str:
    """A verdict as a symbol and its figure; a dash if there is none."""
    return f"{SYMBOLS[found['verdict']][0]} {found['figure']}" if found else "–"


@command("advise", group=theory)
@with_settings
def advise_command(
    env: Annotated[str, typer.Argument(metavar="ENV", help="The environment, see `stormpg list`; or gym:ID.")],
    epsilon: Annotated[float, typer.Option(help="Target for the norm of the gradient.")],
    variant: Annotated[str, typer.Option(help=f"The settings to write: {', '.join(VARIANTS)}.")] = "measured",
    pilot: Annotated[int, typer.Option(min=10, help="Trajectories in the pilot batch.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the pilot batch.")] = 0,
    horizon: Horizon = None,
    toml: Annotated[Path, typer.Option("--out", help="TOML file for `stormpg train --config`.")] = Path("advice.toml"),
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Recommend settings for STORM-PG from a pilot batch, by theory and in practice."""
    from stormpg.theory import advice

    choose("variant", variant, VARIANTS)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon is {epsilon}; expected a number above 0.")
    policy_settings = {name: value for name, value in settings.items() if name in POLICY_OPTIONS}
    extra = [name for name, value in settings.items() if value is not None and name not in (*POLICY_OPTIONS, "gamma")]
    if extra:
        raise InputError(f"the adviser chooses {', '.join(extra)} itself: leave out --{extra[0].replace('_', '-')}.")
    job = Job({"env": env, "horizon": horizon, "gamma": settings.get("gamma"), **policy_settings})
    steps, gamma = job.horizon or job.env.horizon, float(job.algorithm.settings["gamma"])
    found = advice.pilot(job.env, job.policy, gamma, pilot, steps, seed)
    prescribed = advice.by_theory(found, epsilon, gamma, steps)
    constants = advice.constants_of(found, gamma, steps)
    proof = math.sqrt(constants.difference(printed=False))
    practical = advice.in_practice(found)
    show_constants(found, constants, proof)
    show_prescriptions(prescribed)
    out.print("In practice, with Adam: " + ", ".join(f"{k} = {v}" for k, v in practical.items()), highlight=False)
    bound = {"proved": proof, "stated": proof, "measured": math.sqrt(found.ratio)}
    warnings = [
        f"{how}: αB < 4C_γ²η² with C_γ = {bound[how]:.3g}: the proof of Theorem 1 does not cover it."
        for how, methods in prescribed.items()
        if not advice.trusted(methods["storm-pg"], bound[how])
    ]
    for warning in warnings:
        out.print(f"Warning, {warning}", highlight=False)
    if variant not in (*prescribed, "practical"):
        raise InputError(
            f"with gamma = {gamma:g} L_d is infinite, so Corollary 1 as stated gives no settings: choose another --variant."
        )
    chosen = practical if variant == "practical" else {**prescribed[variant]["storm-pg"].settings, "optimizer": "sgd"}
    budget = {} if variant == "practical" else {"trajectories": prescribed[variant]["storm-pg"].trajectories}
    given = {name: value for name, value in policy_settings.items() if value is not None}
    shape = {"horizon": job.horizon} if job.horizon else {}
    content = {"env": env, "algorithm": "storm-pg", **chosen, "gamma": gamma, **budget, **shape, **typed(given)}
    write_toml(toml, content)
    out.print(f"Wrote {toml}: stormpg train --config {toml}", highlight=False)
    methods = {how: {name: {**p.settings, "T": p.T, "trajectories": p.trajectories} for name, p in all_.items()}
               for how, all_ in prescribed.items()}  # fmt: skip
    finish(as_json, {"pilot": found._asdict(), "prescribed": methods, "practical": practical, "warnings": warnings})


def typed(given: dict[str, Any]) -> dict[str, Any]:
    """The values of flags, which arrive as text, as a TOML file has them: numbers as numbers."""
    return {name: float(value) if POLICY_OPTIONS[name] is float else value for name, value in given.items()}


def show_constants(found: "Pilot", constants: "Constants", proof: float) -> None:
    """Print the constants of the pilot batch and the bounds that follow from them."""

    def how(name: str) -> str:
        return "exact" if name in found.exact else f"{found.trajectories} trajectories"

    rows = [
        ("R", "largest reward", found.R, how("R")),
        ("M", "largest score", found.M, how("M")),
        ("N", "largest Hessian of log π", found.N, how("N")),
        ("σ²", "variance of d(ξ₀)", found.sigma2, how("sigma2")),
        ("φ²", "variance of a trajectory's weight, one step", found.phi2, how("phi2")),
        ("Δ", "bound on L* − L(ξ₀)", found.gap, how("gap")),
        ("‖∇L‖²", "at ξ₀", found.signal, how("signal")),
        ("L_d", "NR/(1−γ)²", constants.L_d, "formula"),
        ("C_γ", "as the proof needs it", proof, "formula"),
        ("C_γ", "over one step", math.sqrt(found.ratio), how("difference")),
    ]
    table("Constants", ("", "", "value", "from"), [(a, b, f"{value:.4g}", d) for a, b, value, d in rows])


def show_prescriptions(prescribed: "Mapping[str, Mapping[str, Prescription]]") -> None:
    """Print the settings that theory prescribes for each method."""
    names = {"measured": "measured constants", "proved": "bounds, as proved", "stated": "bounds, as stated"}
    for how in (how for how in names if how in prescribed):
        numbers = {name: (p.S0, p.B, p.m, p.alpha, p.eta, p.T, p.trajectories) for name, p in prescribed[how].items()}
        rows = [[name, *("–" if x is None else short(x) for x in values)] for name, values in numbers.items()]
        title = f"Settings prescribed by theory, with {names[how]}"
        table(title, ("method", "S0", "B", "m", "α", "η", "T", "trajectories"), rows)


def short(value: float) -> str:
    """A number with three significant digits and a short exponent."""
    return re.sub(r"e([+-])0*", lambda sign: f"e{sign[1].replace('+', '')}", f"{value:.3g}")
