"""The sections of the page as HTML. All of them, except the figures, work without JavaScript."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stormpg.report.html import figures, folded, inline, section, table, text
from stormpg.report.palette import MANY
from stormpg.report.tables import decided_first, env_results, multiplicity, says, tally

Data = Mapping[str, Any]

# The CSS class of a verdict, and a symbol so that it does not depend on colour alone.
VERDICTS = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "cannot be told": ("open", "?")}
FEW = 2  # environments whose figures are all shown; with more, all but the curves are folded
UNMEASURED = {"figure": "", "interval": "", "verdict": "not measured"}


def small_multiples(data: Data) -> bool:
    """Whether the learning curves of all environments are shown side by side: if there are several, with no other figures."""
    environments = data.get("environments") or ()
    return len(environments) > 2 and not any(e.get("profiles") or e.get("improvement") for e in environments)


def findings(data: Data) -> str:
    """The first section: what was found, in one paragraph."""
    found = data.get("findings")
    return section("findings", "Findings", f'<p class="findings">{inline(found)}</p>') if found else ""


def curves(data: Data) -> str:
    """The learning curves of all environments, with one set of controls, and the returns at the end as tables."""
    environments = data.get("environments") or ()
    if not environments:
        return ""
    controls = '<div class="controls bar" id="controls" hidden></div>'
    if small_multiples(data):
        places = "".join(f'<div class="place" id="environment-{i}-figures"></div>' for i in range(len(environments)))
        ends = "".join(f"<h3>{text(env['title'])}</h3>{ends_table(data, env)}" for env in environments)
        shown = f'<div class="figures">{places}</div>', folded("Return at the end, as tables", ends, False)
        return section("curves", "Learning curves", controls, *shown)
    parts = [environment(data, index, env, len(environments) <= FEW) for index, env in enumerate(environments)]
    return f'<div class="environments">{controls}{"".join(parts)}</div>'


def environment(data: Data, index: int, env: Data, shown: bool) -> str:
    """The section of an environment: its curves, and more figures and a table, which are folded if there are several."""
    name, title = f"environment-{index}", env.get("title") or env["name"]
    note = f'<p class="note">{inline(env["note"])}</p>' if env.get("note") else ""
    if not any(one.get("curves") for one in env["algorithms"].values()):
        return section(name, title, note, '<p class="missing">Learning curves were not measured.</p>', figures(name))
    more = figures(f"{name}-more") + ends_table(data, env)
    both = "Performance profile, probability of improvement, and return at the end"
    heading = both if env.get("profiles") or env.get("improvement") else "Return at the end"
    return section(name, title, note, figures(name), folded(heading, more, shown and len(env["algorithms"]) <= MANY))


def ends_table(data: Data, env: Data) -> str:
    """The return of each algorithm at the end of its curve, under each protocol."""
    heads, rows = env_results(data, env)
    caption = f"Return at the end on {env.get('title') or env['name']}, with 95 % intervals over seeds"
    return table(caption, map(text, heads), (map(text, row) for row in rows), "ends")


def protocols(data: Data) -> dict[str, Mapping[str, str]]:
    """The protocols described in the data, followed by those that are only used."""
    used = [name for claim in data.get("claims") or () for name in claim.get("results", {})]
    return {**(data.get("protocols") or {}), **{name: {} for name in used if name not in (data.get("protocols") or {})}}


def verdicts(data: Data) -> str:
    """The section of all claims with their verdicts: a table for each environment, in which the decided ones come first."""
    claims, known = data.get("claims") or (), protocols(data)
    if not claims:
        return ""
    titles = {env["name"]: env.get("title") or env["name"] for env in data.get("environments") or ()}
    parts = [f"<p>{text(line)}</p>" for line in tally(data, known)]
    measured = [claim for claim in claims if any(claim.get("results", {}).values())]
    found = dict.fromkeys(claim.get("env", "") for claim in measured)
    for env in [name for name in titles if name in found] + [name for name in found if name not in titles]:
        mine = decided_first([claim for claim in measured if claim.get("env", "") == env])
        parts += [f"<h3>{text(titles.get(env, env))}</h3>" if env else "", verdict_table(data, mine, known)]
    rest = "; ".join(f"{c['sentence']} ({c.get('env', '')})" for c in claims if c not in measured)
    parts += [folded(f"{len(claims) - len(measured)} claims were not measured", f"<p>{text(rest)}.</p>", False)] if rest else []
    legend = [f"<dt>{text(p.get('label', n))}</dt><dd>{inline(p['note'])}</dd>" for n, p in known.items() if p.get("note")]
    many = [f'<p class="note">{text(sentence)}</p>' for sentence in multiplicity(data)]
    return section("verdicts", "Verdicts", *parts, f"<dl>{''.join(legend)}</dl>", *many)


def verdict_table(data: Data, claims: Sequence[Data], known: Mapping[str, Mapping[str, str]]) -> str:
    """The claims about an environment. Protocols under which none was measured have no column."""
    columns = {name: p for name, p in known.items() if any((claim.get("results", {}).get(name)) for claim in claims)}
    results = {name: [{**UNMEASURED, **(claim.get("results", {}).get(name) or {})} for claim in claims] for name in columns}
    heads = [text(says(data).capitalize()), "Claimed"]
    for name, protocol in columns.items():
        held = [result["verdict"] == "holds" for result in results[name] if result["verdict"] != "not measured"]
        heads.append(f"{text(protocol.get('label', name))}<small>{sum(held)} of {len(held)} hold</small>")
    rows = [
        [
            f"{text(claim['sentence'])}<small>{text(claim.get('quantity', ''))}</small>",
            text(claim.get("paper", "")),
            *(verdict(results[name][index]) for name in columns),
        ]
        for index, claim in enumerate(claims)
    ]
    return table(
        "Claims with figure, 95 % interval and verdict under each protocol; the decided ones first", heads, rows, "verdicts"
    )


def verdict(result: Data) -> str:
    """A cell with figure, interval and verdict."""
    kind, symbol = VERDICTS.get(result["verdict"], ("missing", "–"))
    badge = f'<span class="verdict {kind}"><span aria-hidden="true">{symbol}</span> {text(result["verdict"])}</span>'
    return f"<strong>{text(result['figure'])}</strong><small>{text(result['interval'])}</small>{badge}"


def charts(data: Data) -> str:
    """The charts, with a section for each of their titles. A table with the same title is in the same section."""
    titles = list(dict.fromkeys(chart["section"] for chart in data.get("charts") or ()))
    return "\n".join(
        section(f"charts-{index}", title, figures(f"charts-{index}"), *map(any_table, named(data, title)))
        for index, title in enumerate(titles)
    )


def named(data: Data, title: str) -> list[Data]:
    """The tables with a title."""
    return [one for one in data.get("tables") or () if one["title"] == title]


def any_table(one: Data) -> str:
    """A table of the data."""
    return table(one["caption"], map(text, one["heads"]), (map(text, row) for row in one["rows"]), "numbers")


def more_figures(data: Data) -> str:
    """The sections of heat maps and of measured variance."""
    parts = []
    if data.get("heatmaps"):
        controls = '<div class="controls" id="heatmaps-controls"></div>'
        parts.append(section("heatmaps", "Sensitivity to the settings", controls, figures("heatmaps")))
    if data.get("variance"):
        parts.append(section("variance", "Variance and bias of the estimators", figures("variance")))
    return "\n".join(parts)


def tables(data: Data) -> str:
    """All tables that are not in a section of charts, each in a section of its own."""
    taken = {chart["section"] for chart in data.get("charts") or ()}
    rest = [one for one in data.get("tables") or () if one["title"] not in taken]
    return "\n".join(section(f"table-{number}", one["title"], any_table(one)) for number, one in enumerate(rest))


def settings(data: Data) -> str:
    """The section of the settings of each algorithm. Those that were given are bold, the others are defaults."""
    groups: dict[str, list[Data]] = {}  # an algorithm with the same settings on several environments has one row
    for row in data.get("settings") or ():
        key = json.dumps([row["algorithm"], row["protocol"], row["settings"], row.get("given")], sort_keys=True, default=str)
        groups.setdefault(key, []).append(row)
    if not groups:
        return ""
    several = len({row["env"] for row in data["settings"]}) > 1
    chosen = [name for row, *_ in groups.values() for name in row["settings"] if name in row.get("given", ())]
    names = list(dict.fromkeys([*chosen, *(name for row, *_ in groups.values() for name in row["settings"])]))
    rows = []
    for row, *same in groups.values():
        given = row.get("given", ())
        cells = {n: f"<strong>{text(v)}</strong>" if n in given else text(v) for n, v in row["settings"].items()}
        where = ", ".join(dict.fromkeys(one["env"] for one in (row, *same)))
        about = [text(where)] if several else []
        rows.append([text(row["algorithm"]), *about, text(row["protocol"]), *(cells.get(name, "–") for name in names)])
    marked = any(row.get("given") for row in data["settings"])
    caption = "What each algorithm ran with; –: it has no such setting"
    caption += ". **Bold**: from the paper’s tables, a search or the command; the others are defaults" if marked else ""
    heads = ["Algorithm", *["Environment"] * several, "Protocol", *map(text, names)]
    return section("settings", "Settings", table(caption, heads, rows, "settings several" if several else "settings"))


def commands(data: Data) -> str:
    """The section of the commands and versions."""
    lines, versions = data.get("commands") or (), data.get("versions") or {}
    parts = [f'<pre tabindex="0"><code>{text(line)}</code></pre>' for line in lines]
    if versions:
        rows = [[text(name), text(version)] for name, version in versions.items()]
        parts.append(table("What it ran on", ["Name", "Version"], rows, "versions"))
    return section("commands", "How to repeat it", *parts) if parts else ""


def notes(data: Data) -> str:
    """The section of notes."""
    lines = "".join(f"<li>{inline(note)}</li>" for note in data.get("notes") or ())
    return section("notes", "Notes", f"<ul>{lines}</ul>") if lines else ""
