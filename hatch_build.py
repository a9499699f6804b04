"""The package page's text: README with links and pictures that lead into the repository."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackagePage(MetadataHookInterface):
    """Sets `readme`: an index shows it without the files that its relative links mean."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the project's metadata."""
        source = metadata["urls"]["Source"]
        text = (Path(self.root) / "README.md").read_text("utf-8")
        text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/raw/main/", text)
        text = re.sub(r"(?<!!)(\[[^\]!]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
