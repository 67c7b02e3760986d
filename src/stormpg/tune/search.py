"""The search: generations of trials, asked of Optuna, halved on the way, told in order.

Nothing depends on who does the work, or when: a generation is asked for as a whole, the sampler has a seed of its own for each
trial, and results are told by number. So a search on a cluster, or one that was interrupted, is the search in one go.
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
from stormpg.studies.units import drop_programs, give_memory_back
from stormpg.studies.workspace import Workspace
from stormpg.tune.halving import halved
from stormpg.tune.plan import Search
from stormpg.tune.storage import asked, tell, trials_of

GENERATIONS = 4  # after which compiled programs are dropped: a space may have any number of shapes
OWNER = "owner"  # the file with the name under which this folder asks for trials


def owner_of(folder: Path) -> str:
    """The name under which this folder asks for trials, which outlives the process."""
    file = folder / OWNER
    if not file.exists():
        files.write_text(file, uuid.uuid4().hex)
    owner = read_text(file, "the name under which a folder asks for trials", 100).strip()
    if re.fullmatch("[0-9a-f]{32}", owner) is None:
        raise InputError(f"{file} holds {shown(owner)}; expected the 32 digits that a search has written there.")
    return owner


def run(workspace: Workspace, search: Search, study: Any, alone: bool) -> None:
    """Generation after generation until there are enough trials. `alone`: nobody else asks for trials of this study.

    Where others are still at work on the last ones, it ends without these.
    """
    owner = owner_of(workspace.root)
    while True:
        mine = [t for t in trials_of(study) if t.user_attrs.get("owner") == owner]
        begun = [t.user_attrs["generation"] for t in mine if not t.state.is_finished()]
        number = min(begun) if begun else 1 + max((t.user_attrs["generation"] for t in mine), default=-1)
        members = asked(study, search, owner, alone, number)
        if not members:
            return
        judge(workspace, search, study, members, number)
        shutil.rmtree(workspace.root / "trials", ignore_errors=True)
        give_memory_back()
        if number % GENERATIONS == GENERATIONS - 1:
            drop_programs()


def judge(workspace: Workspace, search: Search, study: Any, members: Sequence[Any], generation: int) -> None:
    """Run a generation rung by rung, and tell what came of it. Some of it may have been told before."""
    judged = halved(workspace, search, [{**search.fixed, **member.params} for member in members], generation)
    for member, found in zip(members, judged, strict=True):
        if not member.state.is_finished():
            tell(study, search, member, found)
