"""Write a page for every algorithm, docs/algorithms/NAME.md, from its constructor and from the stored comparison of the family.

It also writes what the comparison found into docs/family.md and README.md (`docs.write_family`).

    python -m docs.write_algorithms [FOLDER]

FOLDER is that of `stormpg compare --suite family`; without it, the results stored in docs/family are used. The pages are
checked by `tests/family/test_pages.py`.
"""

import dataclasses
import inspect
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.write_family import DOCS, marked, summaries, table

from stormpg.algorithms import ALGORITHMS, DEFAULT, Algorithm, make_algorithm
from stormpg.algorithms.settings import SETTINGS, Choices, Range, tuned_values
from stormpg.family.authors import EVERYWHERE
from stormpg.family.authors import SETTINGS as PUBLISHED
from stormpg.family.rows import REFERENCES, STORM
from stormpg.paper import TABLES
from stormpg.report.tables import SYMBOLS

STORED, PAGES = DOCS / "family", DOCS / "algorithms"
RESULTS = ("scores.json", "claims.json", "curves.json", "map1.png", "map2.png")
FIRST = "cartpole"  # the task of the example command

Data = Mapping[str, Any]


def words(part: Any) -> str:
    """The first sentence of the docstring of a part, which says what it computes."""
    text = " ".join((inspect.getdoc(type(part)) or "").split("\n\n")[0].split())
    return text or type(part).__name__


def parts(algorithm: Algorithm) -> Iterator[tuple[str, str]]:
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
    """The settings of a constructor: symbol, meaning, default, and the values over which they are tuned."""
    tuned = tuned_values(name)
    rows = []
    for key, parameter in inspect.signature(ALGORITHMS[name]).parameters.items():
        values = tuned.get(key)
        shown = "" if values is None else ", ".join(map(str, values.values)) if isinstance(values, Choices) else ""
        shown = f"{values.low:g} to {values.high:g}" if isinstance(values, Range) else shown
        rows.append((f"`{key}`", SETTINGS[key].text, f"{parameter.default}", shown))
    return table(("setting", "meaning", "default", "tuned over"), rows)


def published(name: str) -> str:
    """The settings that authors published."""
    given = {env: values[name] for env, values in TABLES.items() if name in values} | dict(PUBLISHED.get(name, {}))
    if not given:
        return "None that carry over: the comparison uses the defaults."
    shown = lambda values: ", ".join(f"{key} {value:g}" for key, value in values.items())
    return table(("task", "settings"), [("all" if env == EVERYWHERE else env, shown(v)) for env, v in given.items()])


def measured(name: str, scores: Data, claims: Any) -> list[str]:
    """What the comparison of the family found about an algorithm."""
    if name not in scores["means"]["tuned"]:
        return ["Not in the comparison of the family; see [the reproduction](../reproduce.md)."]
    shown = [one for one in dict.fromkeys((name, *REFERENCES))]
    heads = ["task", *(f"{one}, {words}" for one in shown for words in ("published", "tuned"))]
    two = lambda number: f"{number:.2f}".replace("-0.00", "0.00")
    cell = lambda one, part, env: two(scores["scores"][part][one][env][0])
    envs = list(scores["scores"]["tuned"][name])
    rows = [[env, *(cell(one, part, env) for one in shown for part in ("given", "tuned"))] for env in envs]
    means = [f"{scores['means'][part][one][0]:.2f}" for one in shown for part in ("given", "tuned")]
    found = [
        "Scores on the tasks of [the comparison](../family.md), means over whole runs: 0 is where STORM-PG starts, 1 the best "
        "return of the task.",
        table(heads, [*rows, ["mean", *means]]),
    ]
    if name in scores["sentences"]:
        found.append(scores["sentences"][name])
    mine = [claim for claim in claims if name in claim["id"].split("@")[0].split("/")]
    if mine:
        lines = []
        for claim in mine:
            results = {key: claim["results"].get(key) for key in ("all", "tuned")}
            cells = [f"{SYMBOLS[r['verdict']]}: {r['figure']} ({r['interval']})" if r else "–" for r in results.values()]
            lines.append([claim["sentence"], claim["env"], *cells])
        found.append(table(("claim", "task", "published settings", "equally tuned"), lines))
    return [*found, f"![Learning curves of {name}, STORM-PG and the default on all tasks, equally tuned]({name}.png)"]


def page(name: str, scores: Data, claims: Any) -> str:
    """The page of an algorithm."""
    text = inspect.getdoc(ALGORITHMS[name]) or ""
    others = ",".join(dict.fromkeys((STORM, DEFAULT, name)))
    return "\n\n".join(
        [
            f"# {name}",
            f"In Python `stormpg.{inspect.unwrap(ALGORITHMS[name]).__name__}()`, for the command `--algorithm {name}`.",
            text,
            "## The row",
            "See [the contract](../architecture.md) for how the parts work together.",
            table(("part", "here"), list(parts(make_algorithm(name)))),
            "## Settings",
            settings(name),
            "## Published settings",
            published(name),
            "## Measured",
            *measured(name, scores, claims),
            "## Commands",
            f"```\nstormpg train {FIRST} --algorithm {name} --trajectories 400\n"
            f"stormpg compare {FIRST} --suite family --algorithms {others}\n```",
            "Written by `python -m docs.write_algorithms`.\n",
        ]
    )


def index() -> str:
    """The list of all pages."""
    rows = []
    for name, constructor in ALGORITHMS.items():
        about = " ".join((inspect.getdoc(constructor) or "").split("\n\n")[0].split())
        rows.append((f"[{name}](algorithms/{name}.md)", about))
    return table(("algorithm", "in a sentence"), rows)


def texts(scores: Data, claims: Any) -> dict[Path, str]:
    """All files that are written, with their content."""
    pages = {PAGES / f"{name}.md": page(name, scores, claims) for name in ALGORITHMS}
    listed = DOCS / "algorithms.md"
    return {**pages, listed: marked(listed.read_text(encoding="utf-8"), "pages", index()), **summaries(scores, claims)}


def draw(name: str, curves: Data, file: Path) -> None:
    """Draw the tuned curves of an algorithm and of both references on all tasks."""
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


def shrink(file: Path) -> None:
    """Reduce a picture to 64 colours."""
    from PIL import Image

    Image.open(file).convert("RGB").quantize(64).save(file, optimize=True)


def stored(name: str) -> Any:
    """The content of a stored result."""
    return json.loads((STORED / name).read_text(encoding="utf-8"))


def main() -> None:
    if len(sys.argv) > 1:
        for name in RESULTS:
            source, target = Path(sys.argv[1]) / name, STORED / name
            if name.endswith(".json"):
                target.write_text(json.dumps(json.loads(source.read_text("utf-8")), separators=(",", ":")) + "\n", "utf-8")
            else:
                shutil.copy(source, target)
                shrink(target)
    scores, claims, curves = (stored(name) for name in RESULTS[:3])
    for file, text in texts(scores, claims).items():
        file.write_text(text, encoding="utf-8")
    if len(sys.argv) > 1:
        for name in scores["means"]["tuned"]:
            draw(name, curves, PAGES / f"{name}.png")


if __name__ == "__main__":
    main()
