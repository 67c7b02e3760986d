"""The report on the laboratory's measurements. `inequalities` makes the part on the lemmas."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpg import files
from stormpg.report.charts import draw_charts, line_chart
from stormpg.report.page import write_page
from stormpg.report.palette import styles_of
from stormpg.report.tables import markdown
from stormpg.runs.table import mean_return
from stormpg.statistics import interval
from stormpg.studies.report_content import simple, versions
from stormpg.studies.verdicts import FAILS, HOLDS, UNCLEAR
from stormpg.studies.workspace import Workspace
from stormpg.theory import gap, laboratory, payoff, rates
from stormpg.theory.inequalities import PROTOCOLS, claim, constants_table, exact_claims, lemma_charts, run_claims
from stormpg.theory.laboratory import Size
from stormpg.theory.summary import paragraph
from stormpg.theory.tracking_error import SUCCESSORS, WITHOUT_WEIGHTS

NOTES = (
    "Problems: Garnet processes with 3 states, 2 actions and 2 steps (γ = 0.9) and soft-max tables, each generated from its "
    "seed; random linear systems for one of the tracking errors and for the map. All in float64, all gradients exact.",
    "Ratios are left side over right side: an inequality holds if its ratio is at most 1. Intervals are bootstrap intervals "
    "over seeds; Lemmas 2 and 3 are exact and have none. If the printed C_γ is needed along runs, φ² is set to 1.",
    "N(ε) is the number of trajectories until E‖∇L(ξ̃)‖² ≤ ε², ξ̃ drawn uniformly from the iterates so far. Prescribed settings "
    "use measured values of σ², the smoothness and Lemma 3's constant: with the paper's bounds the numbers are out of reach.",
    "With tuned settings, large steps meet the theory's criterion first: soft-max tables move to where gradients and their "
    "noise vanish together, with any tracker. Slopes of prescribed settings test the theories, not which method is fast.",
    "The map uses random linear systems, whose noise does not vanish: trajectories until E‖∇L(ξ_t)‖² ≤ ε² at an iterate. Each "
    "method has eighteen settings. Half of the seeds select, the other half is shown. Above 1 STORM-PG is ahead.",
)
OFF_SCALE = 1e9  # larger values are not drawn


def on_scale(values: Sequence[float]) -> list[float | None]:
    """Replace values too large to draw by None. One diverged seed makes the mean that large."""
    return [value if value < OFF_SCALE else None for value in values]


def error_charts(found: Mapping[str, Any], size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Charts of E‖g − ∇L‖² of every method, and a table of its parts over whole runs."""
    charts, rows = [], []
    for kind, words in (("finite", "a Garnet process"), ("linear", "a linear system")):
        for name in size.methods:
            part = found[f"errors/{kind}/{name}.json"]
            whole = [part["whole"].get(key) for key in ("error", "bias", "variance", "gradient")]
            cells = ["–" if x is None else f"{x[0]:.3g} ({x[1]:.3g} to {x[2]:.3g})" for x in whole]
            shown = ", ".join(f"{key} {value:.3g}" for key, value in part["settings"].items())
            rows.append([f"{name}, {words}", *cells, shown])
        for group, title in error_groups(size).items():
            series = []
            for name in group:
                part = found[f"errors/{kind}/{name}.json"]
                series.append({"name": name, "x": part["trajectories"], **{k: on_scale(v) for k, v in part["error"].items()}})
            bound = found[f"errors/{kind}/storm-pg.json"].get("lemma4")
            if bound and "gpomdp" in group:
                series.append({"name": "Lemma 4 for storm-pg", "x": series[-1]["x"], "estimate": bound})
            gap = any(None in one["estimate"] for one in series)
            note = "A gap: a seed has diverged, so the mean is off the scale." if gap else ""
            names = ("trajectories sampled", "squared error", "y")
            charts.append(line_chart("Tracking error", f"{title} on {words}", *names, series, note))
    heads = ["method", "error E‖g − ∇L‖²", "bias, squared", "variance", "E‖∇L‖²", "settings"]
    caption = "Means over whole runs at equal trajectories, with intervals over seeds; bias: error carried over by the memory"
    return charts, {"title": "Tracking error and its parts", "caption": caption, "heads": heads, "rows": rows}


def error_groups(size: Size) -> dict[tuple[str, ...], str]:
    """The methods of each chart of tracking errors, with its title: those of the paper, and STORM-PG with its successors."""
    paper = tuple(name for name in size.methods if name not in SUCCESSORS)
    weights = tuple(name for name in size.methods if name in SUCCESSORS and name not in WITHOUT_WEIGHTS)
    without = tuple(name for name in size.methods if name in WITHOUT_WEIGHTS)
    groups = {paper: "E‖g − ∇L‖²", ("storm-pg", *weights): "with weights", ("storm-pg", *without): "without weights"}
    return {group: title for group, title in groups.items() if len(group) > 1}


def rate_charts(found: Mapping[str, Any], size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Charts of N(ε), and a table of its slopes."""
    charts, rows = [], []
    claimed = rates.CLAIMED | rates.SUCCESSORS
    successors = [name for name in size.rated if name in rates.SUCCESSORS]
    ways = {
        "settings that the theories prescribe": ("prescribed", size.compared),
        "settings tuned equally": ("tuned", [name for name in size.rated if name in rates.CLAIMED]),
        "settings tuned equally, successors": ("tuned", ["storm-pg", *successors]),
    }
    for words, (way, names) in ways.items():
        series = []
        for name in names:
            part = found[f"rates/{way}/{name}.json"]
            bands = {
                key: np.exp(np.mean([np.log(p[source]) for p in part["problems"]], axis=0))
                for key, source in (("estimate", "numbers"), ("low", "low"), ("high", "high"))
            }
            series.append({"name": name, "x": part["share"][::-1], **{key: band[::-1] for key, band in bands.items()}})
            steep = rates.together(part["problems"])
            single = ", ".join("–" if math.isnan(p["slope"]) else f"{p['slope']:.2f}" for p in part["problems"])
            missing = sum(not math.isfinite(n) for p in part["problems"] for n in p["numbers"])
            cell = f"{float(steep.estimate):.2f} ({float(steep.low):.2f} to {float(steep.high):.2f})"
            if lost := rates.undefined(part["problems"]):
                cell += f"; undefined in {lost} of {rates.RESAMPLES} resamples"
            exponent = "–" if claimed[name] is None else f"{claimed[name]:.2f}"
            row = [f"{name}, {way}", exponent, cell, single, str(missing)]
            rows += [row] if row not in rows else []  # STORM-PG is in both charts of tuned settings
        title = f"N(ε) with {words}"
        note = "Geometric means over the problems. A gap: not reached on every problem."
        charts.append(line_chart("Rates", title, "ε / ‖∇L(ξ₀)‖", "trajectories", "xy", series, note))
    heads = ["method and settings", "claimed exponent", "measured slope", "slope on each problem", "ε not reached"]
    caption = "Slope of log N(ε) over log ε: the mean over problems, with an interval over seeds"
    return charts, {"title": "Rates", "caption": caption, "heads": heads, "rows": rows}


def gap_charts(found: Mapping[str, Any], size: Size) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """Charts of the gap L* − L of each problem, a table of its slopes, and the claim of TSIVR-PG about it."""
    charts, rows = [], []
    slopes: dict[str, list[Any]] = {}
    for seed in range(size.problems):
        series = []
        for name in gap.METHODS:
            part = found[f"gaps/{name}-{seed}.json"]
            series.append({"name": name, "x": part["trajectories"], **part["gap"]})
            slopes.setdefault(name, []).append(part["slope"])
        title = f"L* − L(ξ_t) on problem {seed}"
        charts.append(line_chart("Gap", title, "trajectories sampled", "L* − L", "xy", series, "Means over seeds."))
    for name, of_problems in slopes.items():
        cells = [f"{e:.2f} ({low:.2f} to {high:.2f})" for e, low, high in of_problems]
        ends = [f"{found[f'gaps/{name}-{seed}.json']['gap']['estimate'][-1]:.2g}" for seed in range(size.problems)]
        rows.append([name, "; ".join(cells), "; ".join(ends)])
    caption = "Slope of log(L* − L) over the last decade of trajectories, on each problem; 0: runs that no longer improve"
    heads = ["method", "slope on each problem", "gap at the end"]
    table = {"title": "Gap to the optimum", "caption": caption, "heads": heads, "rows": rows}
    near = [(low >= gap.CLAIMED - gap.MARGIN, high <= gap.CLAIMED + gap.MARGIN) for _, low, high in slopes["tsivr-pg"]]
    apart = all(high < gap.CLAIMED - gap.MARGIN or low > gap.CLAIMED + gap.MARGIN for _, low, high in slopes["tsivr-pg"])
    verdict = HOLDS if all(all(both) for both in near) else FAILS if apart else UNCLEAR
    figure = f"{np.mean([e for e, _, _ in slopes['tsivr-pg']]):.2f}"
    result = {"figure": figure, "interval": rows[list(slopes).index("tsivr-pg")][1], "verdict": verdict}
    sentence = "TSIVR-PG (Zhang et al. 2021): the gap closes like N^−½"
    quantity = f"slope of the gap, mean over problems; holds: within {gap.MARGIN} of {gap.CLAIMED} on each"
    return charts, table, [claim("tsivr-pg/slope", sentence, quantity, "−0.496", {"printed": result})]


def map_charts(found: Mapping[str, Any], size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Maps of GPOMDP's trajectories over STORM-PG's, and a table of the cells with their intervals."""
    charts: list[dict[str, Any]] = []
    rows, ahead = [], []
    for (e, share), B in itertools.product(enumerate(payoff.SHARES), size.batches):
        z: list[list[Any]] = [[None for _ in size.horizons] for _ in size.noises]
        decided = [[False for _ in size.horizons] for _ in size.noises]
        for j, horizon in enumerate(size.horizons):
            plain, reduced = (found[f"map/{name}-{horizon}-{B}.json"] for name in ("gpomdp", "storm-pg"))
            for i, noise in enumerate(size.noises):
                of_plain, of_reduced = ([cell[e] for cell in part["cells"][i :: len(size.noises)]] for part in (plain, reduced))
                result = payoff.ratio(of_plain, of_reduced, plain["most"])
                z[i][j] = result["ratio"]
                shown = "neither" if result["ratio"] is None else f"{result['ratio']:.2f}"
                between = "" if result["ratio"] is None else f"{result['low']:.2f} to {result['high']:.2f}"
                never = f"{result['never'][0]} / {result['never'][1]}"
                rows.append([f"{share:g}", str(B), str(horizon), f"{noise:g}", shown, between, never])
                if result["ratio"] is not None:
                    ahead.append((result["low"] > 1, result["high"] < 1))
                    decided[i][j] = any(ahead[-1])
        axes = {"x_name": "horizon", "x": list(size.horizons), "y_name": "system noise", "y": list(size.noises)}
        title = f"ε = {share:g} ‖∇L(ξ₀)‖, batches of {B}"
        marks = {"marked": decided, "star": "1 is outside the interval", "cross": "neither method reached ε"}
        about = {"section": "Where variance reduction pays", "title": title, "label": "ratio"}
        charts.append({**about, "final": z, **axes, **marks})
    better, worse = (sum(pair[i] for pair in ahead) for i in range(2))
    count = len(rows)
    tally = (
        f"Of {count} cells, STORM-PG is significantly ahead in {better} and behind in "
        f"{worse}; {len(ahead) - better - worse} are undecided, and in {count - len(ahead)} neither method reached ε"
    )
    heads = ["ε / ‖∇L(ξ₀)‖", "B", "horizon", "noise", "ratio", "interval", "never reached (GPOMDP / STORM-PG)"]
    about = {"title": "Where variance reduction pays", "caption": f"GPOMDP's trajectories over STORM-PG's. {tally}"}
    return charts, {**about, "tally": tally, "heads": heads, "rows": rows}


def adviser_table(found: Mapping[str, Any], size: Size) -> dict[str, Any]:
    """A table of the mean return over whole runs with each choice of settings."""
    rows = []
    for env in size.environments:
        part = found[f"adviser/{env}.json"]
        cells = []
        for how, chosen in (("adviser", part["settings"]), ("table", part["given"]), ("tuned", part["tuned"])):
            estimate, low, high, _ = interval(mean_return(part["runs"][how]))
            names = ("eta", "alpha", "S0", "B")
            shown = ", ".join(f"{name} {chosen[name]:.3g}" for name in names if name in chosen) or "defaults"
            cells.append(f"{float(estimate):.4g} ({float(low):.4g} to {float(high):.4g}); {shown}")
        rows.append([env, *cells])
    caption = (
        f"Mean return over whole runs of STORM-PG, {size.advised_seeds} seeds. The adviser samples {size.pilot} "
        "trajectories first, which are not counted in its runs; a search over 12 settings samples several thousand"
    )
    heads = ["environment", "the adviser, in practice", "the paper's table, or the defaults", "the best of a search"]
    return {"title": "The adviser compared with the tables and a search", "caption": caption, "heads": heads, "rows": rows}


def content(found: Mapping[str, Any], size: Size, commands: Sequence[str]) -> dict[str, Any]:
    """Return the whole report as plain Python objects."""
    tracking, parts = error_charts(found, size)
    speeds, slopes = rate_charts(found, size)
    gaps, gap_table, gap_claims = gap_charts(found, size)
    cells, cell_table = map_charts(found, size)
    claims = exact_claims(found) + run_claims(found) + gap_claims
    made: dict[str, Any] = simple(
        {
            "title": "The theory of STORM-PG, on problems whose gradient is known",
            "subtitle": f"{size.problems} random problems. Both sides of every inequality, and the measured slopes.",
            "findings": paragraph(claims, slopes["rows"], cell_table["tally"]),
            "protocols": PROTOCOLS,
            "claims": claims,
            "charts": [*lemma_charts(found), *tracking, *speeds, *gaps, *cells],
            "tables": [constants_table(found), parts, slopes, gap_table, cell_table, adviser_table(found, size)],
            "notes": list(NOTES),
            "commands": list(commands),
            "versions": versions(),
        }
    )
    return made


def report(workspace: Workspace, size: Size, commands: Sequence[str]) -> dict[str, Any]:
    """Measure what is missing, write the report, and return its content."""
    data = content(laboratory.run(workspace, size), size, commands)
    write(data, workspace.root)
    return data


def write(data: Mapping[str, Any], folder: Path) -> None:
    """Write report.html, tables.md, claims.json, and a figure for each section."""
    files.write_json(folder / "claims.json", data["claims"])
    files.write_text(folder / "tables.md", markdown(data))
    looks = styles_of(data)
    for section in dict.fromkeys(chart["section"] for chart in data["charts"]):
        name = section.lower().replace(" ", "-")
        mine = [chart for chart in data["charts"] if chart["section"] == section]
        draw_charts(mine, [folder / f"{name}.png", folder / f"{name}.pdf"], looks)
    write_page(data, folder / "report.html")
