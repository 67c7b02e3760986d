"""What the documentation prints: fenced blocks and commands in the text, in the order of the page.

The language of a fence says what it is: none, `bash` or `sh` for commands, `python`, `toml` for a file, `text` for output, an
equation or the forms of a command.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(f.relative_to(ROOT)) for kind in ("md", "ipynb") for f in (ROOT / "docs").rglob(f"*.{kind}")),
)

COMMANDS, PYTHON, FILE, TEXT = "command", "python", "file", "text"
KINDS = {"": COMMANDS, "bash": COMMANDS, "sh": COMMANDS, "python": PYTHON, "toml": FILE, "text": TEXT}
PROGRAMS = ("stormpg", "make", "pip", "python", "python3", "ray", "ssh", "docker", "git")  # of commands in the text

FENCE = re.compile(r"^(?P<indent> *)```(?P<about>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(rf"`((?:[A-Z]+=\S+ )?(?:{'|'.join(PROGRAMS)})\s[^`]+)`")
TITLE = re.compile(r'title="([^"]+)"')


class Printed(NamedTuple):
    """One command, snippet or file as printed. `name`: of a file."""

    page: str
    line: int
    kind: str
    text: str
    name: str = ""
    inline: bool = False

    @property
    def plain(self) -> str:
        """A command without its comment."""
        return re.sub(r"\s+#.*", "", self.text)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text.strip().splitlines()[0]}"


def text_of(page: str) -> str:
    """The text of a page; of a notebook, that between its cells of code, which `test_notebooks` runs."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if not page.endswith(".ipynb"):
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def printed(page: str, text: str | None = None) -> list[Printed]:
    """Everything that a page prints, in order. Each command of a block is one."""
    text = text_of(page) if text is None else text
    found = [one for fence in FENCE.finditer(text) for one in of_fence(page, text, fence)]
    outside = FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)  # the same length, so that lines stay
    for match in INLINE.finditer(outside):
        command = " ".join(match[1].split())  # it may be broken into two lines
        kind = TEXT if " | " in command or " ..." in command else COMMANDS
        found.append(Printed(page, line_of(text, match.start()), kind, command, inline=True))
    return sorted(found, key=lambda one: one.line)


def of_fence(page: str, text: str, fence: re.Match[str]) -> Iterator[Printed]:
    """A block as one, or as its commands."""
    language, _, about = fence["about"].strip().partition(" ")
    first = line_of(text, fence.start()) + 1
    if language not in KINDS:
        raise AssertionError(f"{page}:{first - 1}: a block in {language!r}; expected one of {', '.join(KINDS)}.")
    content = "".join(line.removeprefix(fence["indent"]) for line in fence["text"].splitlines(keepends=True))
    if KINDS[language] != COMMANDS:
        title = TITLE.search(about)
        yield Printed(page, first, KINDS[language], content, title[1] if title else "")
        return
    joined = content.replace("\\\n", "  ")  # a long command may have several lines
    for number, line in enumerate(joined.splitlines()):
        for command in line.split(" && "):
            if shlex.split(command, comments=True):
                yield Printed(page, first + number, COMMANDS, command.strip())


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def words(command: str) -> list[str]:
    """The words of a command, without its comment."""
    return shlex.split(command, comments=True)
