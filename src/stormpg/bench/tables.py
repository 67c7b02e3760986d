"""Output of the tables: JSON, the terminal, plots, the README's table, and a comparison with an earlier result."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpg import files
from stormpg.bench import learning
from stormpg.errors import InputError, shown
from stormpg.files.reading import Text, check_fields, conforms, read_object
from stormpg.report.palette import COLOURS, WIDTH, styles
from stormpg.studies.report_content import simple

MACHINE: dict[str, Any] = {"cpu": str, "cores": int, "accelerators": list[str]}
TABLE: dict[str, Any] = {
    **dict.fromkeys(("name", "title", "unit", "faster_is"), str),
    **{"note": Text, "rows": list[dict[str, Any]]},
}
ROW: dict[str, Any] = {  # the fields of a row that are not numbers
    **{"name": str, "version": str, "axis": str, "missing": Text},
    **{"values": list[float], "setting": Any, "value": Any},
}
Result = Mapping[str, Any]  # the result of `where_and_when`, and "tables"

SLOWER = 0.9  # a row is slower if its speed is below this share of the earlier one, and the ranges of values do not overlap
BEGIN, END = "<!-- speed -->", "<!-- end of speed -->"
LEARNING = "<!-- learning -->", "<!-- end of learning -->"


def read(file: Path) -> Result:
    """Read a stored result; InputError if the file holds anything else."""
    expected = "a result of `stormpg bench`"
    result = read_object(file, expected)
    check_fields(result, {"date": str, "tables": list[dict[str, Any]], "machine": dict[str, Any]}, str(file))
    check_fields(result["machine"], MACHINE, f"machine in {file}")
    for table in result["tables"]:
        check_fields(table, TABLE, f"a table of {file}")
        for row in table["rows"]:
            wrong = [key for key, value in row.items() if not conforms(value, ROW.get(key, float))]
            if wrong or "name" not in row or not {"median", "missing"} & row.keys():
                raise InputError(f"{file} holds the row {shown(row)}; expected {expected}.")
    return result


def store(result: Result, folder: Path) -> Path:
    """Write a result and its plots; the file name says when and on which machine it was measured."""
    file = folder / f"{file_name(result)}.json"
    plots_in = file.with_suffix("")
    plots_in.mkdir(parents=True, exist_ok=True)
    plots(result, plots_in)
    files.write_text(file, json.dumps(simple(result), indent=1, ensure_ascii=False) + "\n")
    return file


def file_name(result: Result) -> str:
    """The name of a result's file: the date, the machine and its cores."""
    machine = result["machine"]
    what = "-".join((machine["accelerators"] or [machine["cpu"]])[0].lower().split()[:3])
    return f"{result['date'][:16].replace(':', '')}-{''.join(c for c in what if c.isalnum() or c == '-')}-{machine['cores']}"


def cells(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The headings and rows of a table, as text: name, median, spread, and the further numbers of the rows."""
    more = list(dict.fromkeys(key for row in table["rows"] for key in row if key not in ("name", "median", "values")))
    more = [key for key in more if key not in ("version", "setting", "axis", "value", "missing")]
    rows = []
    for row in table["rows"]:
        values = row.get("values", [])
        spread = f"{number(min(values))} to {number(max(values))}" if len(values) > 1 else ""
        said = [row["missing"], ""] if "missing" in row else [number(row["median"]), spread]
        rows.append([row["name"], *said, *(number(row[key]) if key in row else "" for key in more)])
    return ["", table["unit"], "spread", *more], rows


def number(value: float) -> str:
    """A number with three significant digits, without an exponent."""
    if not math.isfinite(value) or value == 0:
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def plots(result: Result, folder: Path) -> list[Path]:
    """Draw a figure for every table: bars with their spread, or lines over an axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = []
    for table in result["tables"]:
        rows = [row for row in table["rows"] if row.get("values")]
        if not rows or table["name"] == "built-in":  # its returns have no common axis
            continue
        lines, scores = "axis" in rows[0], table["name"] == "learning"
        height = 7.5 if scores else 1.3 + 0.3 * len(rows)
        figure = Figure(figsize=(7, 4.6) if lines else (8, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        if scores:
            learning.plot(axes, table)
        else:
            (_lines if lines else _bars)(axes, rows)
        axes.set_ylabel(table["unit"]) if lines else axes.set_xlabel("score" if scores else table["unit"])
        if scores:
            axes.set_title(table["title"], loc="left", fontweight="bold", pad=24)
        else:  # long labels leave little room above the axes
            figure.suptitle(table["title"], x=0.01, horizontalalignment="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, axis="both" if lines else "x")
        made.append(folder / f"{table['name']}.png")
        figure.savefig(made[-1], dpi=150)
    return made


def _bars(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    medians = [row["median"] for row in rows]
    reach = [[m - min(r["values"]) for m, r in zip(medians, rows, strict=True)],
             [max(r["values"]) - m for m, r in zip(medians, rows, strict=True)]]  # fmt: skip
    axes.barh(range(len(rows)), medians, xerr=reach, color=COLOURS[0], ecolor="0.3", error_kw={"linewidth": 1})
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    if max(medians) > 30 * min(medians):
        axes.set_xscale("log")
    for position, row in enumerate(rows):
        at = (max(row["values"]), position)
        axes.annotate(number(row["median"]), at, (4, 0), textcoords="offset points", fontsize=8, va="center")
    axes.margins(x=0.12)


def _lines(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for axis, look in styles(row["axis"] for row in rows).items():
        mine = [row for row in rows if row["axis"] == axis]
        power = f", exponent {mine[0]['exponent']:.2f}" if "exponent" in mine[0] else ""
        line = {**look.line(), "linewidth": WIDTH, "marker": "o", "label": f"{axis}{power}"}
        axes.loglog([row["value"] for row in mine], [row["median"] for row in mine], **line)
    medians = [row["median"] for row in rows]
    if max(medians) < 10 * min(medians):
        axes.set_yscale("linear")
        axes.set_ylim(bottom=0)
    axes.set_xlabel("value of the axis; the other axes stay at their usual values")
    axes.legend(frameon=False, fontsize=9)


def slower(new: Result, old: Result) -> Iterator[tuple[str, float]]:
    """The rows of both results that got slower, with the new speed as a share of the old one."""
    for table in new["tables"]:
        before = [row for t in old["tables"] if t["name"] == table["name"] for row in t["rows"]]
        known = {row["name"]: row for row in before if row.get("values")}
        for row in table["rows"]:
            if not row.get("values") or row["name"] not in known:
                continue
            a, b = row, known[row["name"]]
            higher = table["faster_is"] == "higher"
            ratio = a["median"] / b["median"] if higher else b["median"] / a["median"]
            apart = max(a["values"]) < min(b["values"]) if higher else min(a["values"]) > max(b["values"])
            if ratio < SLOWER and apart:
                yield f"{table['title']}: {row['name']}", ratio


def compared(new: Result, old: Result) -> int:
    """The number of rows that both results have."""
    names = [{(t["name"], r["name"]) for t in one["tables"] for r in t["rows"] if r.get("values")} for one in (new, old)]
    return len(names[0] & names[1])


def markdown(result: Result) -> str:
    """The most important tables of a result, for the README."""
    machine, versions = result["machine"], result["versions"]
    what = ", ".join(machine["accelerators"]) or machine["cpu"]
    lines = [
        f"{what}, {machine['cores']} cores, jax {versions['jax']}, {result['date'][:10]}; medians.",
        "",
    ]
    for table in result["tables"]:
        if table["name"] not in ("limit", "peers", "outside", "robots", "waits", "kernels"):
            continue
        headings, rows = cells(table)
        keep = [i for i, heading in enumerate(headings) if heading not in ("spread", "share of peak", "live")]
        kept = [[row[i] for i in keep] for row in (headings, *rows)]
        lines += [f"| {' | '.join([table['title'], *kept[0][1:]])} |", f"|{' --- |' * len(keep)}"]
        lines += [f"| {' | '.join(row)} |" for row in kept[1:]] + [""]
    return "\n".join(lines)


def write_readme(result: Result, file: Path) -> None:
    """Write the tables into the README, between their marks: what is learned has its own place."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    learned = [table for table in result["tables"] if table["name"] == "learning"]
    if learned:
        text = between(text, file, LEARNING, learning.markdown(learned[0]))
    if any(table["name"] not in ("learning", "built-in") for table in result["tables"]):
        text = between(text, file, (BEGIN, END), markdown(result))
    file.write_text(text, encoding="utf-8")


def between(text: str, file: Path, marks: tuple[str, str], new: str) -> str:
    """The text with new lines between these two marks."""
    begin, end = marks
    if begin not in text or end not in text:
        raise InputError(f"{file} has no place for the table: put the lines {begin} and {end} where it belongs.")
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n{new}\n{end}{rest.split(end, 1)[1]}"
