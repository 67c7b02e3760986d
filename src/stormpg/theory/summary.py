"""The findings of the laboratory in one paragraph."""

from collections.abc import Mapping, Sequence
from typing import Any

from stormpg.studies.summary import code, counted
from stormpg.theory import rates


def paragraph(claims: Sequence[Mapping[str, Any]], slopes: Sequence[Sequence[str]], pays: str) -> str:
    """The findings in one paragraph: the inequalities, the rates, and where variance reduction pays."""
    parts = [*counted(claims, "printed", "as the papers print them"), *counted(claims, "mended", "as their proofs require")]
    grow = []
    for way, words in (("prescribed", "the settings that the theories prescribe"), ("tuned", "settings tuned equally")):
        found = {row[0].removesuffix(f", {way}"): row[2].split()[0] for row in slopes if row[0].endswith(way)}
        known = [name for name in rates.METHODS if found.get(name, "nan") != "nan"]
        shown = ", ".join(f"{found[name].replace('-', '−')} ({code([name])})" for name in known)
        grow += [f"{shown} with {words}"] if shown else []
    if grow:
        parts.append(f"The trajectories until the gradient is below ε grow like ε to the power {'; '.join(grow)}.")
    return " ".join([*parts, f"Where variance reduction pays: {pays[0].lower()}{pays[1:]}."])
