"""The files of a report: report.html, tables.md, claims.json and the figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormpg import files
from stormpg.report.escaping import for_matplotlib
from stormpg.report.figures import learning_curves
from stormpg.report.page import write_page
from stormpg.report.palette import styles_of
from stormpg.report.tables import markdown

PRINTED = ("paper", "all", "tuned")  # the protocols that have a panel in a printed figure


def write_report(data: Mapping[str, Any], folder: Path, figures: Mapping[str, str]) -> None:
    """Write all files of a report. `figures`: file names without extension, with the environment each shows."""
    files.write_json(folder / "claims.json", data["claims"])
    files.write_text(folder / "tables.md", markdown(data))
    looks = styles_of(data)
    labels = {key: protocol["label"] for key, protocol in data["protocols"].items()}
    for name, env in figures.items():
        shown = next(e for e in data["environments"] if e["name"] == env)
        prints = [folder / f"{name}.png", folder / f"{name}.pdf"]
        shown_by = f"stormpg {data['versions']['stormpg']}"
        subtitle = f"{for_matplotlib(env)}; bands: 95 % bootstrap interval over all seeds; {shown_by}"
        learning_curves(shown, PRINTED, labels, looks, subtitle, prints)
    write_page(data, folder / "report.html")
