"""Hooks of the site: pages that the build makes, links that leave docs/, and ``llms.txt``.

`mkdocs.yml` names this file. ``OPERAD_REPOSITORY``, a URL such as ``https://github.com/you/operad``, makes links
of paths outside docs/; without it they are shown as text.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
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
NAME = re.compile(r"\[`([\w.]+)\.(\w+)`\]\(api/README\.md\)")
"""A link such as ``[`operad.plugin.CallMap`](api/README.md)``, which works in the repository too."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the modules of the API reference in the navigation."""
    for section in config.nav or ():
        for page in next(iter(section.values())):
            if "API" in page:
                page["API"] = [page["API"], *({face: f"api/{face}.md"} for face in references.FACES)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that the build makes, in place of those that say so to readers of the repository."""
    for uri, text in references.pages().items():
        if (written := files.get_file_from_path(uri)) is not None:
            files.remove(written)
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, "images/logo.svg", abs_src_path=str(LOGO)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links that leave docs/ to the repository, and public names to their entries in the API reference."""

    def leads(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        folder = posixpath.dirname(page.file.src_uri)
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return link[0]
        if REPOSITORY:
            return f"{image}[{text}]({REPOSITORY}/blob/main/{path})"
        return text

    def named(link: re.Match[str]) -> str:
        module, name = link.groups()
        return f"[`{module}.{name}`](api/{module}.md#{name.lower()})"

    return LINK.sub(leads, NAME.sub(named, markdown))


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
