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


def paragraph(scores: Data, claims: Any) -> str:
    """The comparison in a few sentences, for README and docs/family.md."""
    means, gains = scores["means"]["tuned"], scores["gains"]["tuned"]
    successors = [name for name in means if name in SUCCESSORS]
    over = {
        reference: {
            verdict: [n for n in successors if verdict_of(gains[n][reference]) == verdict] for verdict in (GAINS, OPEN, LOSES)
        }
        for reference in REFERENCES
    }
    storm, default = (over[reference] for reference in REFERENCES)
    best = sorted(successors, key=lambda name: -means[name][0])[:3]
    say = lambda names: f"{len(names)} ({listed(names)})" if names else "none"
    tested = [claim["results"]["tuned"]["verdict"] for claim in claims if "tuned" in claim["results"]]
    envs = next(iter(scores["scores"]["tuned"].values()))
    count = {verdict: tested.count(verdict) for verdict in ("holds", "does not hold", "cannot be told")}
    return (
        f"{len(successors)} successors on {len(envs)} tasks, each tuned with the same budget and shown on fresh seeds, score "
        f"between {min(means[n][0] for n in successors):.2f} and {max(means[n][0] for n in successors):.2f} (STORM-PG "
        f"{means[STORM][0]:.2f}, the default of the library {means[DEFAULT][0]:.2f}; 0 is where STORM-PG starts, 1 the best "
        f"return of a task). Over STORM-PG, {say(storm[GAINS])} gain, {len(storm[OPEN])} show no clear difference and "
        f"{len(storm[LOSES])} lose. Over the default, {say(default[GAINS])} gain, {len(default[OPEN])} show no clear "
        f"difference and {len(default[LOSES])} lose. The best are {listed(best)}. Of {len(tested)} claims of their authors, "
        f"{count['holds']} hold, {count['does not hold']} do not, and {count['cannot be told']} cannot be told."
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
