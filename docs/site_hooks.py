"""Hooks of the site (mkdocs.yml): a page of every algorithm in the navigation, links of files outside docs/, and commands."""

import re
from pathlib import Path
from typing import Any

FOLDER = "algorithms"
COMMANDS = re.compile(r"^( *)```\n(.*?\n\1```)$", re.DOTALL | re.MULTILINE)  # a block of no language


def on_config(config: Any) -> Any:
    """Add the pages of the algorithms to the navigation."""
    names = sorted(file.stem for file in (Path(config["docs_dir"]) / FOLDER).glob("*.md"))
    pages = [{name: f"{FOLDER}/{name}.md"} for name in names]
    tab = next(part["Algorithms"] for part in config["nav"] if "Algorithms" in part)
    tab.append({"Each algorithm": pages})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Include CONTRIBUTING.md and CHANGELOG.md, whose links are relative to the repository. Say which blocks are commands."""
    source = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}.get(page.file.src_uri)
    if source is not None:
        markdown = (Path(config["config_file_path"]).parent / source).read_text(encoding="utf-8").replace("](docs/", "](")
    return as_commands(markdown)


def as_commands(markdown: str) -> str:
    """The text of a page in which blocks of no language are those of a shell, so that they look different from output."""
    blocks = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    blocks[1::2] = [COMMANDS.sub(r"\1```sh\n\2", block) for block in blocks[1::2]]
    return "".join(blocks)
