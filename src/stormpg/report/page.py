"""The page of results: one self-contained HTML file that opens from disk, without a network.

Text and tables are static HTML (`sections`) and work without JavaScript. Figures are drawn by the scripts in assets/ from the
data in the page. No library is needed for that, so that a page is small enough to be sent.
"""

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from stormpg.report import sections
from stormpg.report.html import embedded, ending, fingerprint, text
from stormpg.report.palette import COLOURS, DIVERGING, GREY, MANY, SEQUENTIAL, styles_of

SCRIPTS = ("words.js", "plot.js", "reading.js", "figures.js", "page.js")  # in this order, as one script
DRAWN = ("environments", "charts", "heatmaps", "variance", "protocols", "first")  # what the scripts use of the data
WIDER = 1.25  # lines on a screen, compared with print


def write_page(data: Mapping[str, Any], file: Path) -> None:
    """Write the page: findings, curves, verdicts, further figures and tables, settings, commands, notes; those with data."""
    assets = files("stormpg.report") / "assets"
    script = ending("\n".join((assets / name).read_text("utf-8") for name in SCRIPTS))
    curves, charts = sections.curves(data), sections.charts(data)
    page = Template((assets / "page.html").read_text("utf-8")).substitute(
        title=text(data["title"]),
        subtitle=text(data.get("subtitle", "")),
        hash=fingerprint(script),
        style=(assets / "page.css").read_text("utf-8"),
        findings=sections.findings(data),
        figures="\n".join((charts, curves) if data.get("charts_first") else (curves, charts)),
        verdicts=sections.verdicts(data),
        more=sections.more_figures(data),
        tables=sections.tables(data),
        settings=sections.settings(data),
        commands=sections.commands(data),
        notes=sections.notes(data),
        data=embedded({key: data[key] for key in DRAWN if key in data} | looks(data)),
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


def looks(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the scripts need besides data: the style of each name, colour scales, and whether curves are side by side."""
    shown = {name: {**one._asdict(), "width": WIDER * one.width} for name, one in styles_of(data).items()}
    scales = {"sequential": SEQUENTIAL, "diverging": DIVERGING}
    small = sections.small_multiples(data)
    return {"styles": shown, "colours": COLOURS, "grey": GREY, "scales": scales, "many": MANY, "small": small}
