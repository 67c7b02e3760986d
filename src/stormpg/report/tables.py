"""The tables of a report: rows for the terminal, and Markdown for a README."""

from collections.abc import Mapping, Sequence
from typing import Any

from stormpg.report.escaping import as_code, for_markdown

SYMBOLS = {"holds": "✓ holds", "does not hold": "✗ does not hold", "cannot be told": "? cannot be told"}

COUNTED = {"holds": "✓ {} hold", "does not hold": "✗ {} do not", "cannot be told": "? {} cannot be told"}

LEGEND = "✓ holds, ✗ does not hold, ? cannot be told, – not measured."


def source(data: Mapping[str, Any]) -> str:
    """Who makes the claims of a report."""
    return str(data.get("source", "the paper"))


def says(data: Mapping[str, Any]) -> str:
    """The heading of claims."""
    return f"{source(data)} {'say' if source(data).endswith('s') else 'says'}"


def decided_first(claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The claims, those that are decided under the most protocols first."""
    decided = ("holds", "does not hold")
    return sorted(claims, key=lambda c: -sum(bool(r) and r["verdict"] in decided for r in c.get("results", {}).values()))


def tally(data: Mapping[str, Any], protocols: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The number of claims with each verdict under each protocol."""
    lines = []
    for key, protocol in protocols.items():
        found = [r["verdict"] for claim in data.get("claims") or () if (r := claim.get("results", {}).get(key))]
        counts = [words.format(found.count(verdict)) for verdict, words in COUNTED.items()]
        lines += [f"{protocol.get('label', key)}: {', '.join(counts)}."] if found else []
    return lines


def verdict_headings(data: Mapping[str, Any]) -> list[str]:
    """The headings of `verdict_rows`."""
    return [says(data), "environment", "paper", *(p["label"] for p in data["protocols"].values())]


def verdict_rows(data: Mapping[str, Any]) -> list[list[str]]:
    """A row for each claim: the statement of the paper, and figure, interval and verdict under each protocol."""
    rows = []
    for claim in data["claims"]:
        cells = []
        for protocol in data["protocols"]:
            found = claim["results"].get(protocol)
            cells.append(f"{SYMBOLS[found['verdict']]}: {found['figure']} ({found['interval']})" if found else "–")
        rows.append([claim["sentence"], claim.get("env", ""), claim["paper"], *cells])
    return rows


def short_verdicts(data: Mapping[str, Any], env: str) -> list[list[str]]:
    """The claims about an environment, each with a symbol and a figure under each protocol, for a narrow terminal."""
    rows = []
    for claim in data["claims"]:
        if claim["env"] == env:
            found = [claim["results"].get(protocol) for protocol in data["protocols"]]
            cells = [f"{SYMBOLS[f['verdict']][0]} {f['figure']}" if f else "–" for f in found]
            rows.append([claim["sentence"], claim["paper"], *cells])
    return rows


def env_results(data: Mapping[str, Any], env: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The final return of each algorithm with its interval, under the protocols that an environment has; with headings."""
    known = {**{key: {} for one in env["algorithms"].values() for key in one["curves"]}, **(data.get("protocols") or {})}
    used = [key for key in known if any(key in one["curves"] for one in env["algorithms"].values())]
    rows = [[name, *(_end(shown["curves"].get(key)) for key in used)] for name, shown in env["algorithms"].items()]
    return ["algorithm", *(known[key].get("label", key) for key in used)], rows


def result_headings(data: Mapping[str, Any]) -> list[str]:
    """The headings of `result_rows`."""
    return ["algorithm", *(protocol["label"] for protocol in data["protocols"].values())]


def result_rows(data: Mapping[str, Any], env: Mapping[str, Any]) -> list[list[str]]:
    """The final return of each algorithm under each protocol, with its interval."""
    return [[name, *(_end(shown["curves"].get(key)) for key in data["protocols"])] for name, shown in env["algorithms"].items()]


def _end(curve: Mapping[str, Any] | None) -> str:
    numbers = [None] * 3 if curve is None else [curve[name][-1] for name in ("estimate", "low", "high")]
    estimate, low, high = ("–" if x is None or x != x else f"{x:.4g}" for x in numbers)
    return estimate if low == high == "–" else f"{estimate} ({low} to {high})"


def multiplicity(data: Mapping[str, Any]) -> list[str]:
    """The note on multiple testing, if the data have one."""
    return [data["multiplicity"]] if data.get("multiplicity") else []


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *body = ([for_markdown(cell) for cell in line] for line in (headings, *rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(headings), *body))


def markdown(data: Mapping[str, Any]) -> str:
    """The content of tables.md."""
    parts = [f"# {for_markdown(data['title'])}", for_markdown(data["subtitle"])]
    if data["claims"]:
        headings = [says(data), "paper", *(p["short"] for p in data["protocols"].values())]
        parts += ["## Verdicts", LEGEND, *multiplicity(data)]
        for env in dict.fromkeys(claim["env"] for claim in data["claims"]):
            parts += [f"On {as_code(env)}:", markdown_table(headings, short_verdicts(data, env))]
        parts += ["## Verdicts with intervals", markdown_table(verdict_headings(data), verdict_rows(data))]
    if data.get("environments"):
        parts += ["## Return at the end"]
    for env in data.get("environments") or ():
        parts += [
            f"### {for_markdown(env['title'])} ({as_code(env['name'])})",
            markdown_table(result_headings(data), result_rows(data, env)),
        ]
    for one in data.get("tables") or ():
        parts += [f"## {for_markdown(one['title'])}", for_markdown(one["caption"]), markdown_table(one["heads"], one["rows"])]
    if data.get("heatmaps"):
        rows = [
            [h["title"], h["env"], f"{h['share']:.0%} ({h['share_interval'][0]:.0%} to {h['share_interval'][1]:.0%})"]
            for h in data["heatmaps"]
        ]
        parts += ["## Share of the grid within 5 % of its best", markdown_table(("grid", "environment", "share"), rows)]
    parts += ["## Protocols", *(f"- **{p['label']}**: {p['note']}" for p in data["protocols"].values())]
    parts += ["## Notes", *(f"- {note}" for note in data["notes"])] if data["notes"] else []
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"
