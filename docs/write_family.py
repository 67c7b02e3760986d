"""What the comparison of the family found, for docs/family.md and README.md, between marks. See `write_algorithms`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpg.algorithms import DEFAULT
from stormpg.family.rows import REFERENCES, STORM, SUCCESSORS
from stormpg.family.scores import GAINS, LOSES, OPEN
from stormpg.report.tables import SYMBOLS

DOCS = Path(__file__).parent

Data = Mapping[str, Any]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, whose cells may have links and code."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (heads, *rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], ["---"] * len(heads), *lines[1:]))


def verdict_of(three: Any) -> str:
    """What a gain with this interval says."""
    _, low, high = three
    return GAINS if low > 0 else LOSES if high < 0 else OPEN


def listed(names: Any) -> str:
    """Names in a sentence."""
    *some, last = [f"`{name}`" for name in names]
    return f"{', '.join(some)} and {last}" if some else last


def outcome(scores: Data, part: str, words: str) -> str:
    """The scores under one protocol, and how many successors gain over both references, in a sentence."""
    means, gains = scores["means"][part], scores["gains"][part]
    successors = [name for name in means if name in SUCCESSORS]
    lowest, highest = min(means[n][0] for n in successors), max(means[n][0] for n in successors)
    parts = []
    for reference in REFERENCES:
        found = {v: [n for n in successors if verdict_of(gains[n][reference]) == v] for v in (GAINS, OPEN, LOSES)}
        gaining = listed(found[GAINS]) if found[GAINS] else "none"
        verb = "gain" if len(found[GAINS]) > 1 else "gains"
        whom = "the default" if reference == DEFAULT else "STORM-PG"
        clear = f"{len(found[OPEN])} show{'s' * (len(found[OPEN]) == 1)} no clear difference"
        parts.append(f"over {whom} {gaining} {verb}, {clear} and {len(found[LOSES])} lose")
    return (
        f"{words} they score {lowest:.2f} to {highest:.2f}, STORM-PG {means[STORM][0]:.2f} and the default of the library "
        f"{means[DEFAULT][0]:.2f}: {'; '.join(parts)}."
    )


def paragraph(scores: Data, claims: Any) -> str:
    """The comparison in a few sentences, for README and docs/family.md."""
    successors = [name for name in scores["means"]["tuned"] if name in SUCCESSORS]
    envs = next(iter(scores["scores"]["tuned"].values()))
    counts = []
    for key, words in (("all", "with published settings"), ("tuned", "tuned")):
        tested = [claim["results"][key]["verdict"] for claim in claims if key in claim["results"]]
        count = {verdict: tested.count(verdict) for verdict in ("holds", "does not hold", "cannot be told")}
        numbers = f"{count['holds']} hold, {count['does not hold']} do not and {count['cannot be told']} cannot be told"
        counts.append(f"{words} {numbers}")
    return (
        f"{len(successors)} successors on {len(envs)} tasks; 0 is where STORM-PG starts, 1 the best return of a task. "
        f"{outcome(scores, 'given', 'With published settings, or else defaults,')} "
        f"{outcome(scores, 'tuned', 'If all are tuned with the same small budget and shown on fresh seeds,')} "
        f"Of the claims of their authors, {'; '.join(counts)}."
    )


def gains_table(scores: Data) -> str:
    """The scores and gains of all algorithms, the best first."""
    means, gains = scores["means"]["tuned"], scores["gains"]
    text = lambda three: f"{three[0]:+.2f} ({three[1]:+.2f} to {three[2]:+.2f})"
    rows = []
    for name in sorted(means, key=lambda name: -means[name][0]):
        over = [gains[part][name].get(r) for r in REFERENCES for part in ("given", "tuned")]
        share = "{:.0%} ({:.0%} to {:.0%})".format(*scores["tolerance"][name])
        score = f"{means[name][0]:.2f} ({means[name][1]:.2f} to {means[name][2]:.2f})"
        rows.append([f"[{name}](algorithms/{name}.md)", score, *("–" if one is None else text(one) for one in over), share])
    heads = [f"over {r}, {w}" for r in REFERENCES for w in ("published", "tuned")]
    return table(["algorithm", "score, tuned", *heads, "tolerated settings"], rows)


def verdict_table(claims: Any) -> str:
    """All claims with their verdicts."""
    rows = []
    for claim in claims:
        found = [claim["results"].get(key) for key in ("paper", "all", "mean", "tuned")]
        cells = [f"{SYMBOLS[r['verdict']][0]} {r['figure']} ({r['interval']})" if r else "–" for r in found]
        rows.append([claim["sentence"], claim["env"], claim["id"].split("/")[0], *cells])
    return table(["claim", "task", "paper of", "(a) best", "(b) IQM", "(b) mean", "(c) tuned"], rows)


def marked(text: str, name: str, content: str) -> str:
    """The text with the content between two marks replaced."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    first, last = text.index(begin) + len(begin), text.index(end)
    return text[:first] + content + text[last:]


def summaries(scores: Data, claims: Any) -> dict[Path, str]:
    """docs/family.md and README.md with what the comparison found."""
    family, readme = DOCS / "family.md", DOCS.parent / "README.md"
    text = family.read_text(encoding="utf-8")
    for name, content in (
        ("found", paragraph(scores, claims)),
        ("gains", gains_table(scores)),
        ("verdicts", verdict_table(claims)),
        ("sentences", "\n".join(f"- {words}" for words in scores["sentences"].values())),
    ):
        text = marked(text, name, content)
    return {family: text, readme: marked(readme.read_text(encoding="utf-8"), "family", paragraph(scores, claims))}
