"""A page for every algorithm, docs/algorithms/NAME.md, from its constructor and from the stored comparison of the family."""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.markdown import DOCS, Part, plain, span, stored, table
from docs.write_family import PARTS, STORED, gain_cell, sentence, shrink

from stormpg.algorithms import ALGORITHMS, DEFAULT, Algorithm, make_algorithm
from stormpg.algorithms.registry import defaults_of, tuned_values
from stormpg.algorithms.settings import SETTINGS, shown, tuned_text
from stormpg.family.authors import EVERYWHERE
from stormpg.family.authors import SETTINGS as PUBLISHED
from stormpg.family.rows import REFERENCES, STORM
from stormpg.paper import TABLES
from stormpg.report.tables import SYMBOLS

PAGES = DOCS / "algorithms"
FIRST = "cartpole"  # the task of the example command

Data = Mapping[str, Any]


def words(part: Any) -> str:
    """The first sentence of the docstring of a part, which says what it computes."""
    text = " ".join((inspect.getdoc(type(part)) or type(part).__name__).split())
    return f"{text.split('. ')[0].rstrip('.')}."


def row_of(algorithm: Algorithm) -> Iterator[tuple[str, str]]:
    """The parts of a row: their names and what they compute."""
    estimator, tracker = algorithm.estimator, algorithm.tracker
    guard = "" if estimator.guard is None else f", guarded: {type(estimator.guard).__name__}"
    yield "estimator", f"{estimator.name}, baseline {estimator.baseline}, {estimator.weighting} weights{guard}"
    if hasattr(tracker, "carrier"):
        reference = "the previous step" if tracker.remembers == "previous" else "the last large batch"
        scale = "" if tracker.scale is None else "γ "
        yield "tracker", f"g_t = α_t d(ξ_t) + (1 − α_t) [ c + {scale}Δ ], with (ξ_ref, c) of {reference}"
        yield "transport", words(tracker.carrier)
        yield ("α_t", f"{float(tracker.alpha):g}") if tracker.rates is None else ("rule for α_t and η_t", words(tracker.rates))
    else:
        yield "tracker", words(tracker)
    yield "schedule", words(algorithm.schedule)
    step: Any = algorithm.step
    while step is not None:  # steps may be nested
        yield "step", words(step)
        inner = [getattr(step, f.name) for f in dataclasses.fields(step) if f.name == "step"] if hasattr(step, "step") else []
        step = inner[0] if inner else None


def settings(name: str) -> str:
    """The settings of a constructor: symbol, meaning, allowed values, default, and the values over which they are tuned."""
    tuned = tuned_values(name)
    rows = []
    for key, default in defaults_of(ALGORITHMS[name]).items():
        setting = SETTINGS[key]
        meaning = f"{setting.meaning}{f' ({setting.values})' if setting.values else ''}"
        allowed = setting.allowed.text if setting.allowed else ""
        rows.append((f"`{key}`", setting.symbol, meaning, allowed, shown(default), tuned_text(tuned.get(key))))
    return table(("setting", "symbol", "meaning", "allowed", "default", "tuned over"), rows)


def published(name: str) -> Iterator[str]:
    """The settings that authors published, and where the command uses them."""
    tables = {env: values[name] for env, values in TABLES.items() if name in values}
    given = tables | dict(PUBLISHED.get(name, {}))
    if not given:
        yield "None that carry over: the comparison uses the defaults."
        return
    words = lambda values: ", ".join(f"{key} {shown(value)}" for key, value in values.items())
    yield table(("task", "settings"), [("all" if env == EVERYWHERE else env, words(v)) for env, v in given.items()])
    if tables:
        yield "On these tasks they are the defaults of the command; the defaults in Python are those above."


def measured(name: str, scores: Data, claims: Any) -> Iterator[str]:
    """What the comparison of the family found about an algorithm."""
    if name not in scores["means"]["tuned"]:
        yield "Not in the comparison of the family; see [the paper's experiments](../reproduce.md)."
        return
    compared = [one for one in REFERENCES if one != name]
    if name not in REFERENCES:
        yield sentence(name, scores)
    if name not in REFERENCES:
        rows = [[words, *(gain_cell(scores["gains"][part][name][one]) for one in compared)] for part, words in PARTS.items()]
        heads = ["gain in score", *(f"over `{one}`" for one in compared)]
        yield f"{table(heads, rows)}\n\nBold: clear; ?: the 95 % interval has 0 in it."
    yield "Scores on the tasks of [the comparison](../family.md): 0 is where STORM-PG starts, 1 the best return of the task."
    kept = list(dict.fromkeys((name, *REFERENCES)))
    heads = ["task", *(f"{one}, {words}" for one in kept for words in ("published", "tuned"))]
    cell = lambda one, part, env: plain(scores["scores"][part][one][env][0])
    rows = [[env, *(cell(one, part, env) for one in kept for part in PARTS)] for env in scores["scores"]["tuned"][name]]
    means = [span(scores["means"][part][one]) for one in kept for part in PARTS]
    yield table(heads, [*rows, ["mean", *means]])
    yield f"![Learning curves of {name}, STORM-PG and the default on all tasks, equally tuned]({name}.png)"
    yield "A curve or an interval may leave its panel at the bottom, so that it does not hide the others."
    mine = [claim for claim in claims if name in claim["id"].split("@")[0].split("/")]
    if mine:
        yield "Claims of papers in which it occurs:"
        lines = []
        for claim in mine:
            results = [claim["results"].get(key) for key in ("all", "tuned")]
            cells = [f"{SYMBOLS[r['verdict']]}: {r['figure']} ({r['interval']})" if r else "–" for r in results]
            lines.append([claim["sentence"], claim["env"], *cells])
        yield table(("claim", "task", "published settings", "equally tuned"), lines)


def page(name: str, scores: Data, claims: Any) -> str:
    """The page of an algorithm."""
    constructor = inspect.unwrap(ALGORITHMS[name])
    others = ",".join(dict.fromkeys((STORM, DEFAULT, name)))
    own = ["More on [a page of its own](../window-npg.md)."] if name == DEFAULT else []
    return "\n\n".join(
        [
            f"# {name}",
            inspect.getdoc(constructor) or "",
            *own,
            f"In Python `stormpg.{constructor.__name__}()`, for the command `--algorithm {name}`:",
            f"```\nstormpg train {FIRST} --algorithm {name} --trajectories 400\n"
            f"stormpg compare {FIRST} --suite family --algorithms {others}\n```",
            "## Parts",
            "[How they work together](../architecture.md#the-contract).",
            table(("part", "here"), list(row_of(make_algorithm(name)))),
            "## Settings",
            settings(name),
            "## Published settings",
            *published(name),
            "## Measured",
            *measured(name, scores, claims),
            "Written by `python -m docs.write`.\n",
        ]
    )


def index() -> str:
    """The list of all pages."""
    rows = []
    for name, constructor in ALGORITHMS.items():
        about = " ".join((inspect.getdoc(constructor) or "").split("\n\n")[0].split())
        rows.append((f"[{name}](algorithms/{name}.md)", about))
    return table(("algorithm", "in a sentence"), rows)


def pages() -> dict[Path, str]:
    """All pages, with their content."""
    scores, claims = stored(STORED / "scores.json"), stored(STORED / "claims.json")
    return {PAGES / f"{name}.md": page(name, scores, claims) for name in ALGORITHMS}


def parts() -> Iterator[Part]:
    """What is written into other pages."""
    yield Part(DOCS / "algorithms.md", "pages", index())


def draw_all() -> None:
    """Draw the curves of all algorithms of the comparison."""
    curves = stored(STORED / "curves.json")
    for name in stored(STORED / "scores.json")["means"]["tuned"]:
        draw(name, curves, PAGES / f"{name}.png")


def lowest(algorithms: Data) -> float:
    """The return at the bottom of a panel: how badly a run diverges, up to 10²¹, would hide all other curves."""
    values = [x for one in REFERENCES for key in ("low", "high") for x in algorithms[one][key]]
    return 2 * min(values) - max(values)


def draw(name: str, curves: Data, file: Path) -> None:
    """Draw the tuned curves of an algorithm and of both references on all tasks. A curve may leave its panel at the bottom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from stormpg.report.palette import COLOURS

    figure = Figure(figsize=(10, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 4).ravel()
    shown = {one: COLOURS[i] for i, one in enumerate(dict.fromkeys((*REFERENCES, name)))}
    for axes, (env, lines) in zip(panels, curves.items(), strict=False):
        for one, colour in shown.items():
            curve = lines["algorithms"][one]
            axes.plot(lines["grid"], curve["estimate"], color=colour, linewidth=2.2 if one == name else 1.2, label=one)
            axes.fill_between(lines["grid"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0)
        if axes.get_ylim()[0] < (bottom := lowest(lines["algorithms"])):
            axes.set_ylim(bottom, max(max(lines["algorithms"][one]["high"]) for one in shown))
        axes.set_title(env.removeprefix("gym:"), fontsize=8, loc="left")
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(curves) :]:
        axes.axis("off")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.supxlabel("trajectories sampled", fontsize=8)
    figure.supylabel("return, IQM and 95 % interval", fontsize=8)
    figure.savefig(file, dpi=85)
    shrink(file)
