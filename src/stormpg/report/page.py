"""The page of results: one self-contained HTML file that opens from disk, without a network.

Tables are static HTML and work without JavaScript. Figures are drawn by assets/page.js from the data in the page.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from stormpg.report.palette import COLOURS, PAGE_DASHES, SUBJECT
from stormpg.report.tables import multiplicity

# The CSS class of a verdict, and a symbol so that it does not depend on colour alone.
VERDICTS = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "cannot be told": ("open", "?")}
UNMEASURED = {"figure": "", "interval": "", "verdict": "not measured"}


def write_page(data: Mapping[str, Any], file: Path) -> None:
    """Write the page. Sections without data are left out."""
    from plotly.offline import get_plotlyjs

    assets = files("stormpg.report") / "assets"
    library, script = ending(get_plotlyjs()), ending((assets / "page.js").read_text("utf-8"))
    page = Template((assets / "page.html").read_text("utf-8")).substitute(
        title=text(data["title"]),
        subtitle=text(data.get("subtitle", "")),
        scripts=f"{fingerprint(library)} {fingerprint(script)}",
        style=(assets / "page.css").read_text("utf-8"),
        verdicts=verdicts(data),
        tables=tables(data),
        settings=settings(data),
        commands=commands(data),
        notes=notes(data),
        data=embedded({**data, "palette": {"colours": COLOURS, "dashes": PAGE_DASHES, "subject": SUBJECT}}),
        library=library,
        script=script,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        # A lone surrogate is not a character. It becomes a reference, which a browser shows as a replacement character.
        temporary.write_text(page, "utf-8", errors="xmlcharrefreplace")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def text(value: Any) -> str:
    """Escape text for HTML, including attributes."""
    return escape(str(value))


def ending(script: str) -> str:
    """Normalise the line endings of a script, as a browser does before it computes the hash."""
    return script.replace("\r\n", "\n").replace("\r", "\n")


def fingerprint(script: str) -> str:
    """The hash of a script for the page's Content-Security-Policy, which allows no other script to run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def embedded(data: Any) -> str:
    """The data as JSON that is safe inside HTML: ASCII, and without <."""
    return json.dumps(plain(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def plain(value: Any) -> Any:
    """Convert a value to JSON types. NaN and infinity, which JSON does not have, become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        # float32 has no more digits than this, and the curves of single runs make up most of the page.
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def protocols(data: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """The protocols described in the data, followed by those that are only used."""
    used = [name for claim in data.get("claims") or () for name in claim.get("results", {})]
    return {**(data.get("protocols") or {}), **{name: {} for name in used if name not in (data.get("protocols") or {})}}


def section(name: str, heading: str, *parts: str) -> str:
    """A section of the page."""
    head = f'<section id="{name}" aria-labelledby="{name}-heading">\n<h2 id="{name}-heading">{heading}</h2>'
    return "\n".join((head, *parts, "</section>"))


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]], kind: str) -> str:
    """A table in a scrollable box that also works with the keyboard. The first cell of a row is its header."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    lines = [f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) for first, *rest in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table class="{kind}">'
        f"<caption><span>{caption}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def verdicts(data: Mapping[str, Any]) -> str:
    """The section of all claims with their verdicts under each protocol."""
    claims, columns = data.get("claims") or (), protocols(data)
    if not claims:
        return ""
    results = {name: [{**UNMEASURED, **(claim.get("results", {}).get(name) or {})} for claim in claims] for name in columns}
    heads = ["Claim", "In the paper"]
    for name, protocol in columns.items():
        held = [result["verdict"] == "holds" for result in results[name] if result["verdict"] != "not measured"]
        tally = f"{sum(held)} of {len(held)} hold" if held else "not measured"
        heads.append(f"{text(protocol.get('label', name))}<small>{tally}</small>")
    rows = [
        [
            f"{text(claim['sentence'])}<small>{text(claim.get('id', ''))} · {text(claim.get('quantity', ''))}</small>",
            text(claim.get("paper", "")),
            *(verdict(results[name][index]) for name in columns),
        ]
        for index, claim in enumerate(claims)
    ]
    legend = [f"<dt>{text(p.get('label', n))}</dt><dd>{text(p['note'])}</dd>" for n, p in columns.items() if p.get("note")]
    caption = "Every claim, the paper’s number and what was measured under each protocol"
    many = [f"<p>{text(sentence)}</p>" for sentence in multiplicity(data)]
    return section("verdicts", "Verdicts", *many, table(caption, heads, rows, "verdicts"), f"<dl>{''.join(legend)}</dl>")


def verdict(result: Mapping[str, Any]) -> str:
    """A cell with figure, interval and verdict."""
    kind, symbol = VERDICTS.get(result["verdict"], ("missing", "–"))
    badge = f'<span class="verdict {kind}"><span aria-hidden="true">{symbol}</span> {text(result["verdict"])}</span>'
    return f"<strong>{text(result['figure'])}</strong><small>{text(result['interval'])}</small>{badge}"


def tables(data: Mapping[str, Any]) -> str:
    """All other tables, each in its own section."""
    return "\n".join(
        section(
            f"table-{number}",
            text(one["title"]),
            table(text(one["caption"]), map(text, one["heads"]), (map(text, row) for row in one["rows"]), "numbers"),
        )
        for number, one in enumerate(data.get("tables") or ())
    )


def settings(data: Mapping[str, Any]) -> str:
    """The section of the settings of each algorithm."""
    chosen, labels = data.get("settings") or (), protocols(data)
    if not chosen:
        return ""
    names = list(dict.fromkeys(name for row in chosen for name in row["settings"]))
    rows = [
        [
            text(row["algorithm"]),
            text(row["env"]),
            text(labels.get(row["protocol"], {}).get("label", row["protocol"])),
            *(text(row["settings"].get(name, "–")) for name in names),
        ]
        for row in chosen
    ]
    heads = ["Algorithm", "Environment", "Protocol", *map(text, names)]
    return section("settings", "Settings", table("The settings each algorithm ran with", heads, rows, "settings"))


def commands(data: Mapping[str, Any]) -> str:
    """The section of the commands and versions."""
    lines, versions = data.get("commands") or (), data.get("versions") or {}
    parts = [f'<pre tabindex="0"><code>{text(line)}</code></pre>' for line in lines]
    if versions:
        rows = [[text(name), text(version)] for name, version in versions.items()]
        parts.append(table("What it ran on", ["Name", "Version"], rows, "versions"))
    return section("commands", "How to repeat it", *parts) if parts else ""


def notes(data: Mapping[str, Any]) -> str:
    """The section of notes."""
    lines = "".join(f"<li>{text(note)}</li>" for note in data.get("notes") or ())
    return section("notes", "Notes", f"<ul>{lines}</ul>") if lines else ""
