"""What the comparison of the family found, for docs/family.md and README.md."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.markdown import DOCS, ROOT, Part, listed, page_of, plain, signed, span, stored, table

from stormpg.algorithms import DEFAULT
from stormpg.family.rows import REFERENCES, STORM, SUCCESSORS
from stormpg.family.scores import GAINS, LOSES, OPEN
from stormpg.family.summary import PARTS, verdict_of
from stormpg.report.tables import SYMBOLS

STORED = DOCS / "family"
RESULTS = ("scores.json", "claims.json", "curves.json", "map1.png", "map2.png")

Data = Mapping[str, Any]


def store(folder: Path) -> None:
    """Store the results of a comparison."""
    for name in RESULTS:
        source, target = folder / name, STORED / name
        if name.endswith(".json"):
            target.write_text(json.dumps(stored(source), separators=(",", ":")) + "\n", "utf-8")
        else:
            shutil.copy(source, target)
            shrink(target)


def shrink(file: Path) -> None:
    """Reduce a picture to 64 colours."""
    from PIL import Image

    Image.open(file).convert("RGB").quantize(64).save(file, optimize=True)


def counts(scores: Data, part: str, reference: str) -> dict[str, list[str]]:
    """The successors that gain over a reference, lose, or show no clear difference."""
    gains = scores["gains"][part]
    names = [name for name in scores["means"][part] if name in SUCCESSORS]
    return {verdict: [n for n in names if verdict_of(gains[n][reference]) == verdict] for verdict in (GAINS, OPEN, LOSES)}


def summary(scores: Data) -> str:
    """The successors, STORM-PG and the default under both protocols."""
    rows = []
    for part, words in PARTS.items():
        means = scores["means"][part]
        theirs = [means[name][0] for name in means if name in SUCCESSORS]
        cells = [f"{plain(min(theirs))} to {plain(max(theirs))}", *(span(means[reference]) for reference in REFERENCES)]
        for reference in REFERENCES:
            found = counts(scores, part, reference)
            cells.append(f"{len(found[GAINS])} / {len(found[OPEN])} / {len(found[LOSES])}")
        rows.append([words, *cells])
    heads = ["", f"scores of {len(theirs)} successors", *(f"`{reference}`" for reference in REFERENCES)]
    return table([*heads, *(f"ahead of `{reference}` / no clear difference / behind" for reference in REFERENCES)], rows)


def in_brief(scores: Data, claims: Any) -> str:
    """The comparison in two sentences, for the README."""
    found = counts(scores, "tuned", STORM)
    envs, ahead = next(iter(scores["scores"]["tuned"].values())), counts(scores, "tuned", DEFAULT)[GAINS]
    named = listed(f"`{name}`" for name in found[GAINS]) if found[GAINS] else "none"
    successors = sum(map(len, found.values()))
    tested = [claim["results"]["all"]["verdict"] for claim in claims if "all" in claim["results"]]
    return (
        f"Equally tuned on {len(envs)} tasks, {named} of the {successors} successors gain"
        f"{'s' * (len(found[GAINS]) < 2)} over STORM-PG, {len(found[OPEN])} show no clear difference and "
        f"{len(found[LOSES])} lose; "
        f"{len(ahead) or 'none'} gain{'s' * (len(ahead) < 2)} over the default. Of {len(tested)} claims of their authors, "
        f"{tested.count('holds')} hold here with published settings, {tested.count('does not hold')} do not and "
        f"{tested.count('cannot be told')} cannot be told."
    )


def gains_table(scores: Data) -> str:
    """The scores and gains of all algorithms, the best first."""
    means, gains = scores["means"], scores["gains"]
    rows = []
    for name in sorted(means["tuned"], key=lambda name: -means["tuned"][name][0]):
        over = [gains[part][name].get(reference) for reference in REFERENCES for part in PARTS]
        share = "{:.0%}".format(scores["tolerance"][name][0])
        own = [plain(means["given"][name][0]), span(means["tuned"][name])]
        rows.append([page_of(name), *own, *("–" if one is None else gain_cell(one) for one in over), share])
    heads = [f"over {reference}, {words}" for reference in REFERENCES for words in ("published", "tuned")]
    return table(["algorithm", "score, published", "score, tuned", *heads, "tolerated settings"], rows)


def gain_cell(three: Any) -> str:
    """A gain; bold if it is clear, with a question mark if it is not."""
    verdict = verdict_of(three)
    return f"**{signed(three[0])}**" if verdict == GAINS else f"{signed(three[0])} ?" if verdict == OPEN else signed(three[0])


PLACES = {GAINS: "ahead of", LOSES: "behind", OPEN: "level with"}


def sentence(name: str, scores: Data) -> str:
    """What an algorithm gains, in a short sentence."""
    found = [[verdict_of(scores["gains"][part][name][reference]) for part in PARTS] for reference in REFERENCES]
    parts = []
    for reference, (given, tuned) in zip(REFERENCES, found, strict=True):
        whom = "the default" if reference == DEFAULT else "STORM-PG"
        places = (
            f"{PLACES[given]} {whom}" if given == tuned else f"{PLACES[given]} {whom} as published and {PLACES[tuned]} it tuned"
        )
        parts.append(places)
    verdict = "gains" if any(GAINS in both for both in found) else "gains nothing"
    return f"`{name}` {verdict}: {', '.join(parts)}."


def sentences(scores: Data) -> str:
    """A sentence for each algorithm that is compared."""
    return "\n".join(f"- {sentence(name, scores)}" for name in scores["gains"]["tuned"] if name not in REFERENCES)


def verdict_table(claims: Any) -> str:
    """All claims with their verdicts."""
    rows = []
    for claim in claims:
        found = [claim["results"].get(key) for key in ("paper", "all", "mean", "tuned")]
        cells = [f"{SYMBOLS[r['verdict']][0]} {r['figure']} ({r['interval']})" if r else "–" for r in found]
        rows.append([claim["sentence"], claim["env"], claim["id"].split("/")[0], *cells])
    return table(["claim", "task", "paper of", "(a) best", "(b) IQM", "(b) mean", "(c) tuned"], rows)


def parts() -> Iterator[Part]:
    """What is written."""
    scores, claims, page = stored(STORED / "scores.json"), stored(STORED / "claims.json"), DOCS / "family.md"
    for name, content in (
        ("found", summary(scores)),
        ("gains", gains_table(scores)),
        ("verdicts", verdict_table(claims)),
        ("sentences", sentences(scores)),
    ):
        yield Part(page, name, content)
    yield Part(ROOT / "README.md", "family", in_brief(scores, claims))
