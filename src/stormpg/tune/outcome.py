"""The results of a search: the best and the default setting on fresh seeds, the history, importances, a TOML file."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stormpg.errors import InputError
from stormpg.report.charts import draw_charts, line_chart
from stormpg.report.write import write_report
from stormpg.runs.options import write_toml
from stormpg.studies.equal_tuning import FRESH_SEED
from stormpg.studies.protocols import Curve
from stormpg.studies.report_content import content, simple
from stormpg.studies.study import Task
from stormpg.studies.summary import ALL, figures, leaders
from stormpg.studies.work_units import Unit
from stormpg.studies.workspace import Workspace
from stormpg.tune.packed_trials import parted
from stormpg.tune.plan import Problem, Search
from stormpg.tune.storage import quiet, trials_of

SECTION = "The search"
SHOWN = 10  # trials in the table
ENOUGH = 8  # distinct values that the importances need
FIGURE = "search"
TOML = "best.toml"


def unit(problem: Problem, name: str, settings: Mapping[str, Any], seeds: int) -> Unit:
    """A setting on seeds that the search did not use."""
    own, policy = parted(settings)
    sizes = (problem.trajectories, seeds, FRESH_SEED, problem.horizon)
    return Unit(f"runs/{name}", problem.env, problem.algorithm, (own,), *sizes, (policy,) if policy else ())


def best_of(study: Any) -> Any:
    """The best of the completed trials."""
    from optuna.trial import TrialState

    whole = [t for t in trials_of(study) if t.state == TrialState.COMPLETE and math.isfinite(t.value)]
    if not whole:
        failed = next((t.user_attrs["error"] for t in trials_of(study) if "error" in t.user_attrs), "there are no trials")
        raise InputError(f"no trial of {study.study_name!r} has a value, so there is no best setting: {failed}")
    sign = -1.0 if study.direction.name == "MAXIMIZE" else 1.0
    return min(whole, key=lambda t: (sign * t.value, t.number))


def history(study: Any, kind: str) -> dict[str, Any]:
    """A chart of the value of every completed trial, the best value so far, and the last score of each pruned trial."""
    from optuna.trial import TrialState

    whole, pruned = ([t for t in trials_of(study) if t.state == state] for state in (TrialState.COMPLETE, TrialState.PRUNED))
    better = max if study.direction.name == "MAXIMIZE" else min
    numbers = range(whole[0].number, len(trials_of(study)))
    so_far = [better(t.value for t in whole if t.number <= number) for number in numbers]
    series = [
        dots("trial", [t.number for t in whole], [t.value for t in whole]),
        {"name": "best so far", "x": list(numbers), "estimate": so_far},
    ]
    if pruned and kind != "threshold":  # the scores of a threshold search are mean returns, not values of its objective
        last = [t.intermediate_values[max(t.intermediate_values)] for t in pruned]
        series.append(dots("pruned trial, at its last rung", [t.number for t in pruned], last))
    return line_chart(SECTION, "History", "trial", kind, "", series)


def dots(name: str, x: Sequence[int], y: Sequence[float]) -> dict[str, Any]:
    """A series of a chart that is drawn as points."""
    return {"name": name, "x": x, "estimate": y, "points": True}


def importances(study: Any) -> dict[str, Any] | None:
    """A chart of the importance of each setting, by PED-ANOVA; None if there are too few trials."""
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
    note = "How much each setting separates the best tenth of the completed trials from the others (PED-ANOVA)."
    about = {"section": SECTION, "title": "Importance of the settings", "x_name": "importance", "note": note, "wide": True}
    return {**about, "names": names, "bars": [float(found[name]) for name in names]} if sum(found.values()) else None


def top(study: Any, search: Search) -> dict[str, Any]:
    """The table of the best trials with their settings."""
    from optuna.trial import TrialState

    trials = trials_of(study)
    whole = [t for t in trials if t.state == TrialState.COMPLETE]
    order = sorted(whole, key=lambda t: t.value, reverse=study.direction.name == "MAXIMIZE")[:SHOWN]
    rows = [[str(t.number), f"{t.value:.5g}", *(shown(t.params[name]) for name in search.space)] for t in order]
    count = {state: sum(t.state == state for t in trials) for state in (TrialState.PRUNED, TrialState.FAIL)}
    caption = (
        f"{search.problem.objective.words}, {len(search.problem.seeds)} seeds per trial. Of {len(trials)} trials "
        f"{count[TrialState.PRUNED]} were pruned and {count[TrialState.FAIL]} failed"
    )
    return {"title": "The best trials", "caption": caption, "heads": ["trial", "value", *search.space], "rows": rows}


def shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def findings(trial: int, env: str, curves: Mapping[str, Curve], fresh: int) -> str:
    """Whether the best setting is better than the default one, with figures."""
    first, close = leaders({name: curve.runs.mean(axis=1) for name, curve in curves.items()}, env)
    words = "not clearly better or worse" if close else "better" if first == "tuned" else "worse"
    where = f"on {fresh} seeds that the search did not use"
    return f"The best setting, of trial {trial}, is {words} than the default one {where}: mean return {figures(curves)}."


def report(
    workspace: Workspace, search: Search, study: Any, default: Mapping[str, Any], fresh: int, commands: Sequence[str]
) -> dict[str, Any]:
    """Run the best and the default setting on fresh seeds, write the report, and return its content."""
    problem, best = search.problem, best_of(study)
    settings = {"tuned": {**search.fixed, **best.params}, "default": dict(default)}
    folders = {"tuned": f"tuned-{best.number}", "default": "default"}  # after more trials, another one may be the best
    units = [unit(problem, folders[name], chosen, fresh) for name, chosen in settings.items()]
    tables = dict(zip(settings, workspace.run(units), strict=True))
    task = Task(
        problem.env,
        f"{problem.algorithm} on {problem.env}",
        problem.trajectories,
        None,
        dict(settings),
        tables,
        algorithms=dict.fromkeys(settings, problem.algorithm),
    )
    curves = task.curves()
    subtitle = (
        f"{len(trials_of(study))} trials; the best setting and the default one on {fresh} seeds that the search did not use. "
        f"Objective: {problem.objective.words}."
    )
    data = content(f"Tuning {task.title}", subtitle, [task], {problem.env: curves}, commands=commands)
    data["findings"] = findings(best.number, problem.env, curves[ALL], fresh)
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
