"""What a search leaves: the best setting beside the default one on fresh seeds, its history, importances, a TOML file."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stormpg.errors import InputError
from stormpg.report.charts import draw_charts, line_chart
from stormpg.report.write import write_report
from stormpg.runs.options import write_toml
from stormpg.studies.equal_tuning import FRESH_SEED
from stormpg.studies.report_content import content, simple
from stormpg.studies.study import Task
from stormpg.studies.units import Unit
from stormpg.studies.workspace import Workspace
from stormpg.tune.packs import parted
from stormpg.tune.plan import Problem, Search
from stormpg.tune.storage import quiet, trials_of

SECTION = "The search"
SHOWN = 10  # trials in the table
ENOUGH = 8  # different values, for importances
FIGURE = "search"
TOML = "best.toml"


def unit(problem: Problem, name: str, settings: Mapping[str, Any], seeds: int) -> Unit:
    """A setting on seeds that had no say in the search."""
    own, policy = parted(settings)
    sizes = (problem.trajectories, seeds, FRESH_SEED, problem.horizon)
    return Unit(f"runs/{name}", problem.env, problem.algorithm, (own,), *sizes, (policy,) if policy else ())


def best_of(study: Any) -> Any:
    """The best of the trials that ran to the end."""
    from optuna.trial import TrialState

    whole = [t for t in trials_of(study) if t.state == TrialState.COMPLETE and math.isfinite(t.value)]
    if not whole:
        failed = next((t.user_attrs["error"] for t in trials_of(study) if "error" in t.user_attrs), "there are none")
        raise InputError(f"no trial of {study.study_name!r} has a value, and so there is no best setting: {failed}")
    sign = -1.0 if study.direction.name == "MAXIMIZE" else 1.0
    return min(whole, key=lambda t: (sign * t.value, t.number))


def history(study: Any, kind: str) -> dict[str, Any]:
    """The value of every whole trial, the best so far, and where those stood that were pruned."""
    from optuna.trial import TrialState

    of = lambda state: [t for t in trials_of(study) if t.state == state]
    whole, pruned = of(TrialState.COMPLETE), of(TrialState.PRUNED)
    better = max if study.direction.name == "MAXIMIZE" else min
    numbers = range(whole[0].number, len(trials_of(study)))
    so_far = [better(t.value for t in whole if t.number <= number) for number in numbers]
    dots = lambda name, x, y: {"name": name, "x": x, "estimate": y, "points": True}
    series = [
        dots("a trial", [t.number for t in whole], [t.value for t in whole]),
        {"name": "the best so far", "x": list(numbers), "estimate": so_far},
    ]
    if pruned and kind != "threshold":  # which has no number before the threshold is reached
        last = [t.intermediate_values[max(t.intermediate_values)] for t in pruned]
        series.append(dots("a pruned trial, where it stood", [t.number for t in pruned], last))
    return line_chart(SECTION, "History", "trial", kind, "", series)


def importances(study: Any) -> dict[str, Any] | None:
    """How much each setting matters, by PED-ANOVA; None with too few trials to tell."""
    import optuna

    values = {t.value for t in trials_of(study) if t.state == optuna.trial.TrialState.COMPLETE}
    if len(values) < ENOUGH:
        return None
    try:
        with quiet():
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):
        return None
    names = list(found)
    note = "Of what separates the better tenth of the trials that were not pruned from the others (PED-ANOVA)."
    about = {"section": SECTION, "title": "Importance of the settings", "x_name": "importance", "note": note, "wide": True}
    return {**about, "names": names, "bars": [float(found[name]) for name in names]} if sum(found.values()) else None


def top(study: Any, search: Search) -> dict[str, Any]:
    """The best trials with their settings."""
    from optuna.trial import TrialState

    everyone = trials_of(study)
    whole = [t for t in everyone if t.state == TrialState.COMPLETE]
    order = sorted(whole, key=lambda t: t.value, reverse=study.direction.name == "MAXIMIZE")[:SHOWN]
    rows = [[str(t.number), f"{t.value:.5g}", *(shown(t.params[name]) for name in search.space)] for t in order]
    count = {state: sum(t.state == state for t in everyone) for state in (TrialState.PRUNED, TrialState.FAIL)}
    caption = (
        f"{search.problem.objective.words}, {len(search.problem.seeds)} seeds a trial. Of {len(everyone)} trials "
        f"{count[TrialState.PRUNED]} were pruned on the way and {count[TrialState.FAIL]} failed"
    )
    return {"title": "The best trials", "caption": caption, "heads": ["trial", "value", *search.space], "rows": rows}


def shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def report(
    workspace: Workspace, search: Search, study: Any, default: Mapping[str, Any], fresh: int, commands: Sequence[str]
) -> dict[str, Any]:
    """Run the best and the default setting on fresh seeds, write everything, and return what it says."""
    problem, best = search.problem, best_of(study)
    settings = {"tuned": {**search.fixed, **best.params}, "default": dict(default)}
    folders = {"tuned": f"tuned-{best.number}", "default": "default"}  # another trial may be the best one later
    units = [unit(problem, folders[name], chosen, fresh) for name, chosen in settings.items()]
    tables = dict(zip(settings, workspace.run(units), strict=True))
    task = Task(problem.env, f"{problem.algorithm} on {problem.env}", problem.trajectories, None, dict(settings), tables)
    subtitle = (
        f"{len(trials_of(study))} trials; the best one and the default beside each other on {fresh} seeds that had no say. "
        f"Objective: {problem.objective.words}."
    )
    data = content(f"A search for {task.title}", subtitle, [task], {problem.env: task.curves()}, commands=commands)
    charts = [history(study, problem.objective.kind), importances(study)]
    data["charts"] = simple([chart for chart in charts if chart is not None])
    data["tables"] = [top(study, search)]
    values = {name: problem.objective.value(table, problem.trajectories) for name, table in tables.items()}
    data["tuned"] = simple({"trial": best.number, "value": best.value, "settings": settings["tuned"], "fresh": values})
    write_report(data, workspace.root, {"figure1": problem.env})
    draw_charts(data["charts"], [workspace.root / f"{FIGURE}.{kind}" for kind in ("png", "pdf")])
    given = {"horizon": problem.horizon} if problem.horizon else {}
    budget = {"trajectories": problem.trajectories, **given}
    write_toml(workspace.root / TOML, {"env": problem.env, "algorithm": problem.algorithm, **budget, **settings["tuned"]})
    return data
