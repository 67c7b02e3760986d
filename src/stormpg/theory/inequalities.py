"""The part of the report on the paper's inequalities: verdicts, charts of both sides, and a table of the constants."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stormpg.report.charts import line_chart

PROTOCOLS = {
    "printed": {
        "short": "printed",
        "label": "As printed",
        "note": "The inequality, its constant and its condition as the paper states them.",
    },
    "mended": {
        "short": "corrected",
        "label": "As its proof requires",
        "note": "Corrected where statement and proof disagree (docs/theory.md lists each correction). For Lemmas 4 and 5, σ² "
        "and Lemma 3's constant are measured along the runs, which gives the sharpest form.",
    },
}


def verdict(low: float, high: float) -> str:
    """The verdict on "ratio at most 1" for a ratio with this interval."""
    return "holds" if high <= 1 else "does not hold" if low > 1 else "cannot be told"


def claim(name: str, sentence: str, quantity: str, paper: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the report's table of claims."""
    return {"id": name, "env": "", "sentence": sentence, "quantity": quantity, "paper": paper, "results": dict(results)}


def exact_claims(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims of Lemmas 2 and 3, with the worst of all pairs of points."""
    parts = [part for name, part in found.items() if name.startswith("lemmas/exact-")]
    count = sum(part["pairs"] for part in parts) * len(parts[0]["rows"])
    made = []
    for number, sentence in ((2, "Var w_h ≤ C_w ‖ξ − ξ'‖²"), (3, "E‖d^{ξ'}(ξ) − d(ξ')‖² ≤ C_γ ‖ξ − ξ'‖²")):
        results = {}
        for how in PROTOCOLS:
            key = f"lemma{number}/{how}"
            worst = max((row | {"problem": p["problem"]} for p in parts for row in p["rows"]), key=lambda row: row[key])
            at = f"at distance {worst['distance']:.2g} on problem {worst['problem']}"
            at += f", h = {worst[f'{key}/h']}" if number == 2 else ""
            figure = "∞" if math.isinf(worst[key]) else f"{worst[key]:.3g}"
            results[how] = {"figure": figure, "interval": f"exact; {at}", "verdict": verdict(worst[key], worst[key])}
        quantity = f"largest ratio of left to right side over {count} pairs of points"
        made.append(claim(f"lemma{number}", f"Lemma {number}: {sentence}", quantity, "at most 1", results))
    return made


def run_claims(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims of Lemmas 4 and 5 over all settings, and of Theorem 1 over those that satisfy its condition."""
    parts = [part for name, part in found.items() if name.startswith("lemmas/runs-")]
    rows = [row | {"problem": part["problem"]} for part in parts for row in part["rows"]]

    def worst(key: str, admitted: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
        if not admitted:
            return None
        row = max(admitted, key=lambda row: row[key][0])
        estimate, low, high = row[key]
        at = f"α = {row['alpha']:g}, η = {row['eta']:.2g}, B = {row['B']}, problem {row['problem']}"
        text = f"{low:.3g} to {high:.3g}; worst of {len(admitted)} settings: {at}"
        return {"figure": f"{estimate:.3g}", "interval": text, "verdict": verdict(low, high)}

    made = []
    for number, sentence in ((4, "one step of the error"), (5, "the sum of all errors")):
        results = {how: worst(f"lemma{number}/{how}", rows) for how in PROTOCOLS}
        quantity = "largest ratio of left to right side, means over seeds"
        made.append(claim(f"lemma{number}", f"Lemma {number}: {sentence} is bounded", quantity, "at most 1", results))
    conditions = {"printed": "stated", "mended": "proof"}
    admitted = {how: [row for row in rows if row["admissible"][c]] for how, c in conditions.items()}
    results = {how: result for how in PROTOCOLS if (result := worst("theorem1", admitted[how])) is not None}
    quantity = "largest ratio of mean E‖∇L(ξ_t)‖² to the bound, among settings that satisfy the condition"
    made.append(claim("theorem1", "Theorem 1: the mean of E‖∇L(ξ_t)‖² is bounded", quantity, "at most 1", results))
    outside = [row for row in rows if not row["admissible"]["measured"]]
    broken = sum(row["theorem1"][1] > 1 for row in outside)
    sharp = [row for row in rows if row["admissible"]["measured"]]
    found_sharp = worst("theorem1", sharp)
    if found_sharp is not None:
        sentence = "Theorem 1 with its condition on measured constants"
        sentence += f"; of {len(outside)} settings outside it, {broken} break the bound"
        made.append(claim("theorem1/measured", sentence, quantity, "at most 1", {"mended": found_sharp}))
    return made


def lemma_charts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Charts of the ratios of Lemmas 2 and 3, and maps of that of Theorem 1."""
    parts = [part for name, part in found.items() if name.startswith("lemmas/exact-")]
    distances = [row["distance"] for row in parts[0]["rows"]]
    names = {
        "lemma2/mended": "Lemma 2, corrected",
        "lemma3/printed": "Lemma 3, as printed",
        "lemma3/mended": "Lemma 3, corrected",
    }
    largest: Callable[[str], list[float]] = lambda key: [
        max(part["rows"][i][key] for part in parts) for i in range(len(distances))
    ]
    series = [{"name": words, "x": distances, "estimate": largest(key)} for key, words in names.items()]
    note = "Lemma 2 as printed is not shown: its constant is 0 at h = 0, so the ratio is infinite."
    charts: list[dict[str, Any]] = [
        line_chart(
            "Lemmas 2 and 3", "Ratio of left to right side, worst pair", "‖ξ − ξ'‖", "ratio", "xy", series, note, level=1.0
        )
    ]
    runs = next(part for name, part in found.items() if name.startswith("lemmas/runs-"))
    for B in dict.fromkeys(row["B"] for row in runs["rows"]):
        rows = [row for row in runs["rows"] if row["B"] == B]
        alphas, etas = (list(dict.fromkeys(row[key] for row in rows)) for key in ("alpha", "eta"))
        z = np.reshape([row["theorem1"][0] for row in rows], (len(alphas), len(etas)))
        beyond = sum(not row["admissible"]["measured"] for row in rows)
        note = f"Outside the theorem's condition (measured constants): {beyond} of {len(rows)} settings."
        axes = {"x_name": "eta", "x": etas, "y_name": "alpha", "y": alphas, "wide": True}
        title = f"Theorem 1: ratio of left to right side, B = {B}"
        charts.append(
            {"section": "Theorem 1", "title": title, "label": "ratio", "final": z, "note": note, "wide": True, **axes}
        )
    return charts


def constants_table(found: Mapping[str, Any]) -> dict[str, Any]:
    """A table of the measured constants and the paper's bounds on them."""
    rows = []
    for name, part in found.items():
        if name.startswith("lemmas/runs-"):
            known = part["constants"]
            measured = [f"{known[key]:.3g}" for key in ("sigma2", "gap", "smoothness")]
            roots = [f"{math.sqrt(known['difference']):.3g}", f"{known['C_gamma']:.3g}", f"{known['L_d']:.3g}"]
            rows.append([f"problem {part['problem']}", *measured, *roots])
    heads = ["", "σ²", "Δ", "smoothness of L", "C_γ, measured", "C_γ, bound of the proof", "L_d"]
    caption = "Measured along an exact ascent from the uniform policy, and the bounds by formula"
    return {"title": "Constants", "caption": caption, "heads": heads, "rows": rows}
