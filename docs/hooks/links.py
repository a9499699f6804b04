"""For mkdocs: what a page links to outside docs/ stands in the repository, and must be there."""

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?P<open>\]\()(?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """Called by mkdocs for every page; a warning fails a strict build."""
    folder = Path(page.file.abs_src_path).parent
    docs = Path(config["docs_dir"])

    def pointed(found: re.Match[str]) -> str:
        target = (folder / found["target"]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        if not target.exists():
            log.warning("%s links to %s, which is not there", page.file.src_uri, found["target"])
        kind = "tree" if target.is_dir() else "blob"
        path = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else ""
        url = f"{config['repo_url'].rstrip('/')}/{kind}/main/{path}"
        return f"]({url}{found['anchor'] or ''})"

    return LINK.sub(pointed, markdown)
