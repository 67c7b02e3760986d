"""The settings of algorithms and policies in docs/glossary.md."""

from collections.abc import Iterator

from docs.markdown import DOCS, Part, page_of, table

from stormpg.algorithms import ALGORITHMS
from stormpg.algorithms.registry import defaults_of
from stormpg.algorithms.settings import SETTINGS
from stormpg.runs.options import POLICY_SETTINGS

FEW = 4  # algorithms that are all named
MOST = 20


def settings() -> str:
    """All settings of algorithms: symbol, name in code, meaning, allowed values, and which algorithms have them."""
    rows = []
    for name, setting in SETTINGS.items():
        users = [one for one, make in ALGORITHMS.items() if name in defaults_of(make)]
        links = [page_of(one) for one in users]
        who = ", ".join(links) if len(users) <= FEW else f"{len(users)}: {', '.join(links[:FEW])} …"
        who = f"{len(users)} of {len(ALGORITHMS)}" if len(users) >= MOST else who
        meaning = f"{setting.meaning}{f' ({setting.values})' if setting.values else ''}"
        # The paper's symbols and those of other authors keep their names in code.
        symbol = setting.symbol or (name if len(name) <= 2 else "")
        rows.append((symbol, f"`{name}`", meaning, setting.allowed.text if setting.allowed else "", who))
    return table(("symbol", "in code", "meaning", "allowed", "algorithms"), rows)


def policy() -> str:
    """The settings of policies that the command has too."""
    rows = [
        (one.symbol, f"`{name}`", one.text, one.allowed.text if one.allowed else "") for name, one in POLICY_SETTINGS.items()
    ]
    return table(("symbol", "in code", "meaning", "allowed"), rows)


def parts() -> Iterator[Part]:
    """What is written."""
    yield Part(DOCS / "glossary.md", "settings", settings())
    yield Part(DOCS / "glossary.md", "policy", policy())
