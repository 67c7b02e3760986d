"""What README.md and docs/speed.md say of stored measurements."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.markdown import DOCS, ROOT, Part, stored

from stormpg.bench.tables import markdown
from stormpg.studies.protocols import PROTOCOLS
from stormpg.studies.verdicts import count_verdicts

RESULTS = ROOT / "benchmarks" / "results"
PEERS = ("Stable-Baselines3 A2C", "PureJaxRL-style PPO")
SHOWN = {"limit", "peers", "waits"}  # the tables of docs/speed.md

Data = Mapping[str, Any]


def results(machine: str = "*-2") -> list[Data]:
    """All stored results of this kind of machine, of two cores by default, the newest last."""
    return [stored(file) for file in sorted(RESULTS.glob(f"{machine}.json"))]


def latest(name: str) -> Sequence[Data]:
    """The rows of the newest stored table with this name."""
    found = [table["rows"] for result in results() for table in result["tables"] if table["name"] == name]
    rows: Sequence[Data] = found[-1]
    return rows


def fastest() -> Data:
    """The newest result that has all tables of docs/speed.md."""
    return [one for one in results() if {table["name"] for table in one["tables"]} >= SHOWN][-1]


def speed(result: Data) -> str:
    """The speed, in two sentences."""
    rows = {row["name"]: row for table in result["tables"] for row in table["rows"]}
    many, one = rows["storm-pg, B=5, 64 seeds"], rows["storm-pg, B=5, 1 seed"]
    beside = " and ".join(f"{rows[name]['ours, one seed']:.0f} times as many as {name}" for name in PEERS)
    return (
        f"Training STORM-PG on Cart-Pole takes {many['median']:.1f} million environment steps a second with 64 seeds on "
        f"{result['machine']['cores']} cores, {many['share of C']:.0%} of hand-written C for the same work, and "
        f"{one['median']:.1f} million with one seed ({one['share of C']:.0%}). One seed of GPOMDP takes {beside}."
    )


def verdicts(claims: Sequence[Data]) -> str:
    """How many claims of the paper hold, in a sentence."""
    parts = []
    for key, protocol in PROTOCOLS.items():
        count = count_verdicts(claims, key)
        tested = sum(count[verdict] for verdict in ("holds", "does not hold", "cannot be told"))
        if tested:
            parts.append(f"{protocol.short}: {count['holds']} of {tested} hold and {count['does not hold']} do not")
    return f"Of the paper's claims that could be tested, by protocol: {'; '.join(parts)}; the others cannot be told."


def parts() -> Iterator[Part]:
    """What is written."""
    result = fastest()
    yield Part(ROOT / "README.md", "speed in brief", speed(result))
    yield Part(ROOT / "README.md", "reproduction", verdicts(stored(DOCS / "reproduction" / "claims.json")))
    yield Part(DOCS / "speed.md", "speed", markdown(result).strip())
    yield Part(DOCS / "speed.md", "speed on a GPU", markdown(results("*-nvidia-*")[-1]).strip())
