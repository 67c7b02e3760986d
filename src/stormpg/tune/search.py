"""The search: generations of trials that Optuna suggests, pruned by successive halving, and reported in order.

The result does not depend on which worker runs a trial, or when: a generation is requested as a whole, the sampler has its own
seed for each trial, and results are reported by trial number. So a search on a cluster, or one that was resumed, ends with the
same trials as an uninterrupted search in one process.
"""

import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stormpg import files
from stormpg.errors import InputError, shown
from stormpg.files.reading import read_text
from stormpg.studies.work_units import drop_programs, give_memory_back
from stormpg.studies.workspace import Workspace
from stormpg.tune.halving import halved
from stormpg.tune.plan import Search
from stormpg.tune.storage import request_trials, tell, trials_of

GENERATIONS = 4  # after which compiled programs are dropped: a space may have any number of shapes
OWNER = "owner"  # the file with the name under which this folder requests trials


def owner_of(folder: Path) -> str:
    """The name under which this folder requests trials. It is stored, so that a later process continues its trials."""
    file = folder / OWNER
    if not file.exists():
        files.write_text(file, uuid.uuid4().hex)
    owner = read_text(file, "the name under which a folder requests trials", 100).strip()
    if re.fullmatch("[0-9a-f]{32}", owner) is None:
        raise InputError(f"{file} holds {shown(owner)}; expected the 32 hexadecimal digits that a search writes there.")
    return owner


def run(workspace: Workspace, search: Search, study: Any, alone: bool) -> None:
    """Run generations until the study has enough trials. `alone`: no other process requests trials of this study.

    It does not wait for trials that other processes are still running.
    """
    owner = owner_of(workspace.root)
    while True:
        mine = [t for t in trials_of(study) if t.user_attrs.get("owner") == owner]
        unfinished = [t.user_attrs["generation"] for t in mine if not t.state.is_finished()]
        number = min(unfinished) if unfinished else 1 + max((t.user_attrs["generation"] for t in mine), default=-1)
        members = request_trials(study, search, owner, alone, number)
        if not members:
            return
        judge(workspace, search, study, members, number)
        shutil.rmtree(workspace.root / "trials", ignore_errors=True)
        give_memory_back()
        if number % GENERATIONS == GENERATIONS - 1:
            drop_programs()


def judge(workspace: Workspace, search: Search, study: Any, members: Sequence[Any], generation: int) -> None:
    """Run a generation rung by rung and report its results. Trials that were reported before are skipped."""
    judged = halved(workspace, search, [{**search.fixed, **member.params} for member in members], generation)
    for member, found in zip(members, judged, strict=True):
        if not member.state.is_finished():
            tell(study, search, member, found)
