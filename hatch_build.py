"""What hatchling asks for beside pyproject.toml: the package page, and where members are."""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Metadata(MetadataHookInterface):
    """Sets `readme`, `dependencies` and `optional-dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the project's metadata."""
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_page(Path(self.root), metadata["urls"]["Source"]),
        }

        def required(names: list[str]) -> list[str]:
            return [requirement(name, Path(self.root), metadata["version"]) for name in names]

        metadata["dependencies"] = required(self.config["dependencies"])
        metadata["optional-dependencies"] = {
            extra: required(names) for extra, names in self.config["extras"].items()
        }


def package_page(root: Path, source: str) -> str:
    """README with links and pictures that lead into the repository: an index has no files."""
    text = (root / "README.md").read_text("utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/raw/main/", text)
    return re.sub(r"(?<!!)(\[[^\]!]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", text)


def requirement(name: str, root: Path, version: str) -> str:
    """A member of the workspace (`ldlm-doctor[extra]`) by its folder in a checkout.

    In a release (LDLM_RELEASE is set, or this is a source distribution) it is the same version
    as ldlm-monitor. Anything else stays as it is.
    """
    member = re.match(r"ldlm-(\w+)", name)
    folder = root / member[1] if member else None
    if folder is None or not (folder / "pyproject.toml").is_file():
        return name
    if os.environ.get("LDLM_RELEASE") or (root / "PKG-INFO").is_file():
        return f"{name}=={version}"
    return f"{name} @ {folder.as_uri()}"
