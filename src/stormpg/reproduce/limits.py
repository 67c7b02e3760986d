"""Check STORM-PG's limiting cases by running them: α = 1 is GPOMDP, α = 0 is SARAH (SRVR-PG without restarts)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stormpg.studies.verdicts import FAILS, HOLDS, show
from stormpg.studies.work_units import Unit
from stormpg.studies.workspace import Workspace

ENV, SEEDS, TRAJECTORIES, BATCH = "cartpole-continuous", 5, 100, 5
TOLERANCE = 1e-3  # relative difference of returns; rounding errors grow over twenty updates

PAIRS: dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]] = {
    "1": ({"alpha": 1.0, "S0": BATCH, "B": BATCH}, "gpomdp", {"S0": BATCH}),
    "0": ({"alpha": 0.0, "S0": BATCH, "B": BATCH}, "srvr-pg", {"S0": BATCH, "B": BATCH, "m": TRAJECTORIES}),
}


def limit_units() -> list[Unit]:
    """The two runs of each limiting case."""
    return [
        Unit(f"limits/alpha-{alpha}/{name}", ENV, name, ({**settings, "eta": 0.01},), TRAJECTORIES, SEEDS)
        for alpha, (storm, other, theirs) in PAIRS.items()
        for name, settings in (("storm-pg", storm), (other, theirs))
    ]


def judge_limits(workspace: Workspace) -> list[dict[str, Any]]:
    """Return a row of claims for each limiting case: the largest relative difference between the returns of the two runs."""
    tables = workspace.run(limit_units())
    rows = []
    for i, (alpha, (_, other, _)) in enumerate(PAIRS.items()):
        ours, theirs = tables[2 * i]["return"], tables[2 * i + 1]["return"]
        gap = float(np.max(np.abs(ours - theirs) / np.abs(theirs))) if len(ours) == len(theirs) else np.inf
        result = {
            "figure": show(gap),
            "interval": f"{SEEDS} seeds",
            "verdict": HOLDS if gap <= TOLERANCE else FAILS,
        }
        rows.append(
            {
                "id": f"limit/alpha-{alpha}",
                "env": ENV,
                "sentence": f"with α = {alpha} STORM-PG is {other}" + (" without restarts" if alpha == "0" else ""),
                "quantity": "largest relative difference of the returns, same seeds and batches",
                "paper": "0",
                "results": {"all": result},
            }
        )
    return rows
