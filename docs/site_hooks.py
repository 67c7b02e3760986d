"""Hooks of the site (mkdocs.yml): a page of every algorithm in the navigation, and links of files outside docs/."""

from pathlib import Path
from typing import Any

FOLDER = "algorithms"


def on_config(config: Any) -> Any:
    """Add the pages of the algorithms to the navigation."""
    names = sorted(file.stem for file in (Path(config["docs_dir"]) / FOLDER).glob("*.md"))
    pages = [{name: f"{FOLDER}/{name}.md"} for name in names]
    tab = next(part["Algorithms"] for part in config["nav"] if "Algorithms" in part)
    tab.append({"Each algorithm": pages})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Include CONTRIBUTING.md and CHANGELOG.md, whose links are relative to the repository."""
    source = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}.get(page.file.src_uri)
    if source is None:
        return markdown
    text = (Path(config["config_file_path"]).parent / source).read_text(encoding="utf-8")
    return text.replace("](docs/", "](")
