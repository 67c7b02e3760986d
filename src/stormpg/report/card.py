"""The card of a result or an agent in a notebook: what was run, learning curves, returns with intervals, and all settings.

Everything is HTML with its styles inside, because notebooks remove style sheets of cells that they do not trust.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from stormpg import statistics
from stormpg.policies.descriptions import describe_policy
from stormpg.report.escaping import for_terminal
from stormpg.report.palette import Style, style
from stormpg.report.svg import Line, chart

POINTS = 80  # of a curve
THICK = 2.6  # pixels, of the mean
THIN = 40  # seeds whose own curves are drawn
CURVES = 4096  # runs whose curves are computed: more would take seconds
ROWS = 12  # settings of a sweep that are listed

BOX = "max-width:640px;margin:4px 0;font:13px/1.45 system-ui,sans-serif;text-align:left"
CELL = "padding:2px 14px 2px 0;border:none;background:none;text-align:{};white-space:nowrap;font-size:13px"
FAINT = "opacity:.75"


def result_card(result: Any, window: int) -> str:
    """The card of a `Result`. `window`: the trajectories that the last return, and a point of a curve, is averaged over."""
    final = result.final_return(window)
    diverged = np.asarray(result.states.diverged).reshape(final.shape).sum(axis=1)
    names = labels(result)
    looks = [style(place) for place in range(len(names))]
    shown = range(min(len(names), ROWS))
    rows = [row(names[i], looks[i].colour, final[i], int(diverged[i])) for i in shown]
    more = f"and {len(names) - ROWS} more settings, in <code>result.metrics</code>" if len(names) > ROWS else ""
    parts = [
        heading(result.algorithms[0].name, result.env.name),
        f'<div style="{FAINT}">{escape(budget(result))}</div>',
        curves(result, window, looks),
        table(("setting", *HEADS)[: len(rows[0])], rows),
        f'<div style="{FAINT}">{caption(final.shape[1], window)} {more}</div>',
        settings(result.algorithms[0], result.policies[0], hidden=varied(result)),
    ]
    return box(parts)


def untrained_card(training: Any) -> str:
    """The card of an `Agent` that has not learned: what it would learn with."""
    advice = "has not learned yet: call <code>learn(steps=...)</code>"
    parts = [
        heading(training.algorithms[0].name, training.env.name),
        f'<div style="{FAINT}">seed {training.seeds[0]}, horizon {training.horizon:,}; {advice}</div>',
        settings(training.algorithms[0], training.policies[0]),
    ]
    return box(parts)


def in_words(result: Any) -> str:
    """A result in one line, where there is only text."""
    return f"{result.algorithms[0].name} on {result.env.name}: {budget(result)}; return {number(result.final_return().mean())}"


HEADS = ("mean return", "95% interval", "worst seed", "best seed")  # with one seed only the first


def box(parts: Sequence[str]) -> str:
    return f'<div style="{BOX}">{"".join(parts)}</div>'


def heading(algorithm: str, env: str) -> str:
    return f'<div style="font-size:15px"><b>{text(algorithm)}</b> on <b>{text(env)}</b></div>'


def text(name: str) -> str:
    """A name, which may hold anything."""
    return escape(for_terminal(name if len(name) <= 80 else f"{name[:79]}…"))


def number(value: float) -> str:
    """Four significant digits, and at most two decimals."""
    return "–" if np.isnan(value) else f"{value:,.4g}" if abs(value) >= 1e5 or not np.isfinite(value) else f"{value:,.2f}"


def budget(result: Any) -> str:
    """Seeds, what each of them sampled, and the time."""
    seeds = result.seeds
    run = bool(seeds) and tuple(seeds) == tuple(range(seeds[0], seeds[0] + len(seeds)))
    which = f" ({seeds[0]} to {seeds[-1]})" if run and len(seeds) > 1 else ""
    counted = f"{len(seeds)} seeds{which}" if len(seeds) > 1 else f"seed {seeds[0]}"
    several = f"{len(result.algorithms)} settings, each with " if len(result.algorithms) > 1 else ""
    sampled, steps = (int(np.asarray(one).max()) for one in (result.states.trajectories, result.states.steps))
    each, most = (" each", "up to ") if len(seeds) > 1 or several else ("", "")
    stopped = "" if result.complete else ", stopped before its budget was used up"
    return f"{several}{counted}, {sampled:,} trajectories and {most}{steps:,} steps{each}, {result.seconds:.1f} s{stopped}"


def varied(result: Any) -> list[str]:
    """The names of the settings that differ in a sweep."""
    all_settings = [both(*pair) for pair in zip(result.algorithms, result.policies, strict=True)]
    return [name for name in all_settings[0] if len({value_of(one.get(name)) for one in all_settings}) > 1]


def labels(result: Any) -> list[str]:
    """What distinguishes each setting of a sweep; of a single setting, nothing."""
    if len(result.algorithms) == 1:
        return [""]
    names = varied(result)
    pairs = [both(*pair) for pair in zip(result.algorithms, result.policies, strict=True)]
    return [", ".join(f"{name} {value_of(one[name])}" for name in names) or f"#{i}" for i, one in enumerate(pairs)]


def both(algorithm: Any, policy: Any) -> dict[str, Any]:
    """The settings of an algorithm and its policy."""
    return {**algorithm.settings, **(describe_policy(policy) or {})}


def value_of(value: Any) -> str:
    """The value of a setting."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_of, value))}]" if len(str(value)) < 60 else f"{len(value)} values"
    if isinstance(value, float) or hasattr(value, "dtype"):
        return f"{float(value):g}"
    return str(getattr(value, "__name__", value))


def settings(algorithm: Any, policy: Any, hidden: Sequence[str] = ()) -> str:
    """All resolved settings, in two lines that wrap."""

    def line(title: str, values: Mapping[str, Any]) -> str:
        shown = [f"{text(k)}&nbsp;<b>{text(value_of(v))}</b>" for k, v in values.items() if k not in hidden]
        return f'<div style="margin-top:4px"><span style="{FAINT}">{title}</span> {", ".join(shown)}</div>' if shown else ""

    described = describe_policy(policy)
    kind = described or {"kind": type(policy).__name__}
    return line("Algorithm:", algorithm.settings) + line("Policy:", kind)


def row(label: str, colour: str, final: np.ndarray, diverged: int) -> list[str]:
    """The returns of one setting over its seeds."""
    mark = f'<span style="color:{colour}">■</span> {text(label)}' if label else ""
    if len(final) == 1:
        return [mark, number(final[0]) + (" (diverged)" if diverged else "")]
    low, high = interval(final)
    between = "–" if low is None or high is None else f"{number(low)} to {number(high)}"
    note = f" ({diverged} diverged)" if diverged else ""
    return [mark, number(final.mean()), between, number(final.min()), number(final.max()) + note]


def interval(final: np.ndarray) -> tuple[float | None, float | None]:
    """The interval of the mean over seeds; None with one seed, or without SciPy."""
    if len(final) < 2 or not np.isfinite(final).all():
        return None, None
    try:
        found = statistics.interval(final)
    except ImportError:
        return None, None
    return float(found.low), float(found.high)


def caption(seeds: int, window: int) -> str:
    """What the returns are."""
    over = "" if seeds == 1 else " Thick line: mean of all seeds. Thin lines: single seeds."
    if seeds > THIN:
        over = f" Thick line: mean of all seeds. Thin lines: the first {THIN}."
    return f"Undiscounted return over the last {window} trajectories{' of every seed' if seeds > 1 else ''}.{over}"


def curves(result: Any, window: int, looks: Sequence[Style]) -> str:
    """The learning curves: of every setting the mean over seeds, and the curves of its first seeds."""
    setting = np.asarray(result.columns["setting"])
    if not len(setting):
        return ""
    grid = np.linspace(0, int(result.columns["trajectories"].max()), POINTS + 1)[1:]
    thin, thick = list[Line](), list[Line]()
    most = max(CURVES // len(looks), 1)
    for i, look in list(enumerate(looks))[:ROWS]:
        mine = np.isin(result.columns["seed"], result.seeds[:most]) & (setting == i)
        if not mine.any():
            continue
        columns = {name: np.asarray(result.columns[name])[mine] for name in ("iteration", "trajectories", "return")}
        each = statistics.curves(columns, grid, window)
        faint = 0.5 if len(looks) == 1 else 0.2
        if len(each) > 1:
            of_seeds = zip(each[:THIN], result.seeds, strict=False)
            thin += [Line(grid, y, look.colour, opacity=faint, label=f"seed {seed}") for y, seed in of_seeds]
        thick.append(Line(grid, each.mean(axis=0), look.colour, look.dash, THICK))
    return f'<div style="margin:6px 0">{chart([*thin, *thick], "trajectories", "return")}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A small table. Its cells are HTML; the first column is empty if there is one setting."""
    first = 0 if rows[0][0] else 1

    def cells(one: Sequence[str], tag: str, style: str) -> str:
        sides = ["left", *["right"] * len(one)][first:]
        inside = zip(one[first:], sides, strict=False)
        return "".join(f'<{tag} style="{CELL.format(side)};{style}">{cell}</{tag}>' for cell, side in inside)

    plain = "border:none;background:none"
    body = "".join(f'<tr style="{plain}">{cells(one, "td", "")}</tr>' for one in rows)
    head = f'<tr style="{plain}">{cells(heads, "th", f"font-weight:normal;{FAINT}")}</tr>'
    return f'<table class="stormpg" style="border-collapse:collapse;margin:0;{plain}">{head}{body}</table>'
