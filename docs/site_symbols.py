"""Hook of the site (mkdocs.yml): symbols such as ξ_{t+1} and γ^h get real sub- and superscripts.

In the repository the pages have them as plain text, which can be read everywhere. Code is not changed.
"""

import re
from typing import Any

LETTER = "A-Za-z\u0370-\u03ff"
# What may be an index: {...}, a word of the list, one letter or digit with or without a prime or a tilde, a fraction.
INDEX = rf"(?:\{{[^{{}}]*\}}|ref|small|large|[{LETTER}0-9*]['\u0303]?|[½⅓⅔⅘])(?![{LETTER}0-9_{{])"
SYMBOL = re.compile(rf"(?<!\w)([{LETTER}∇]|mean|max)((?:[_^]{INDEX})+)")
POWER = re.compile(rf"(?<=[)‖\d])\^({INDEX})|(?<=[a-z])\^\(([^()]*)\)")
ONE = re.compile(rf"([_^])({INDEX})")
# What is left as it is: code, drawings, and the tags themselves.
KEPT = re.compile(r"(<(code|pre|script|style|svg)\b.*?</\2>|<[^>]+>)", re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Set the symbols of a page."""
    parts = KEPT.split(html)
    parts[0::3] = [symbols(part) for part in parts[0::3]]
    del parts[2::3]  # the names of the tags
    return "".join(parts)


def symbols(text: str) -> str:
    """A text with sub- and superscripts."""
    text = SYMBOL.sub(lambda found: found[1] + ONE.sub(raised, found[2]), text)
    return POWER.sub(lambda found: tagged("sup", found[1] or found[2]), text)


def raised(found: re.Match[str]) -> str:
    return tagged("sub" if found[1] == "_" else "sup", found[2])


def tagged(tag: str, index: str) -> str:
    """An index without its braces. It may have indices of its own."""
    return f"<{tag}>{symbols(index.removeprefix('{').removesuffix('}'))}</{tag}>"
