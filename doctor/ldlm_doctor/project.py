"""The files that are audited together: what one sets, another may read."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a file is, by its name and its first line."""

    SHELL = "shell"
    PYTHON = "python"
    YAML = "yaml"
    JSON = "json"
    """A configuration of DeepSpeed or of a trainer."""
    ENVIRONMENT = "environment"
    CONTAINER = "container"
    """A Dockerfile."""
    REQUIREMENTS = "requirements"
    """What is installed: requirements.txt, pyproject.toml and the like; read for versions."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read; ``path`` as the user would write it."""

    path: str
    kind: Kind
    content: bytes


@dataclass(frozen=True, slots=True)
class Project:
    """All files of one audit."""

    files: tuple[SourceFile, ...]

    def of(self, kind: Kind) -> tuple[SourceFile, ...]:
        """The files of one kind."""
        return tuple(file for file in self.files if file.kind is kind)
