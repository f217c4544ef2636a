"""Hooks of the site: pages that the build makes, links that leave docs/, and ``llms.txt``.

`mkdocs.yml` names this file. ``OPERAD_REPOSITORY``, a URL such as ``https://github.com/you/operad``, makes links
of paths outside docs/; without it they are shown as text.
"""

from __future__ import annotations

import importlib
import inspect
import os
import posixpath
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools import references  # noqa: E402  # tools/ is found from the root only

REPOSITORY = os.environ.get("OPERAD_REPOSITORY", "").rstrip("/")
LOGO = ROOT / "plugins/serve/src/operad_serve/explorer/icon.svg"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((\.\./[^)\s]*)\)")


def api_pages() -> dict[str, str]:
    """Return the pages of the API reference: for each module, its public names for mkdocstrings."""
    homes: dict[tuple[str, int], str] = {}
    index = ["# API reference\n", "What you may import. Everything else may change in any version.\n"]
    pages = {}
    for face in references.FACES:
        module = importlib.import_module(face)
        about = inspect.cleandoc(module.__doc__ or "").partition("\n")[0].removeprefix("operad: ")
        index.append(f"- [`{face}`]({face}.md): {about}")
        parts = [f"# {face}\n\n{about}\n"]
        for name in module.__all__:
            value = getattr(module, name)
            home = homes.setdefault((name, id(value)), face)
            see = f"See [`{home}.{name}`]({home}.md#{name.lower()}).\n"
            parts.append(f"## {name}\n\n{_described(name, value) if home == face else see}")
        pages[f"api/{face}.md"] = "\n".join(parts)
    return {"api/README.md": "\n".join(index) + "\n", **pages}


def _described(name: str, value: Any) -> str:
    """Return what a page says about a public name: classes and functions are left to mkdocstrings."""
    if inspect.isclass(value) or inspect.isfunction(value):
        is_made = not (
            inspect.isclass(value) and (issubclass(value, Enum) or getattr(value, "_is_protocol", False))
        )
        how = references.signature(name, value) if is_made else ""
        return f"{how}::: {value.__module__}.{value.__qualname__}\n"
    if inspect.ismodule(value):
        return f"The module `{value.__name__}`. {inspect.cleandoc(value.__doc__ or '')}\n"
    source, words = references.assigned(name)
    return f"```python\n{source}\n```\n\n{words}\n" if 0 < len(source) < 400 else f"{words}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that the build makes."""
    for uri, text in api_pages().items():
        if (written := files.get_file_from_path(uri)) is not None:
            files.remove(written)
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, "images/logo.svg", abs_src_path=str(LOGO)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links that leave docs/ to the repository."""

    def leads(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        folder = posixpath.dirname(page.file.src_uri)
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return link[0]
        if REPOSITORY:
            return f"{image}[{text}]({REPOSITORY}/blob/main/{path})"
        return text

    return LINK.sub(leads, markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Make ``llms.txt`` (llmstxt.org): each page of the navigation with its first sentence."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section = ""
    for page in nav.pages:
        top = page.ancestors[-1].title if page.ancestors else ""
        if top != section:
            section = top
            lines += ["", f"## {section}", ""]
        title, about = summary(page.file.content_string)
        lines.append(f"- [{title}]({page.file.url}): {about}" if about else f"- [{title}]({page.file.url})")
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))
    return nav


def summary(markdown: str) -> tuple[str, str]:
    """Return the title of a page and the first sentence below it."""
    title = next((line[2:] for line in markdown.splitlines() if line.startswith("# ")), "")
    body = re.sub(r"```.*?```|<!--.*?-->|<[^>]+>", "", markdown.partition(f"# {title}")[2], flags=re.DOTALL)
    texts = (" ".join(block.split()) for block in body.split("\n\n"))
    about = next((text for text in texts if re.match(r"[A-Z`*\[]", text) and not text.startswith("![")), "")
    about = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", about).strip("*")
    return title, re.split(r"(?<=[.!?:]) (?=[A-Z])", about)[0].rstrip(":")
