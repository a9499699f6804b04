"""The one loader of the YAML in this package, and of users' definitions."""

from importlib.resources import files
from typing import Any

import yaml

# The C loader, if PyYAML has it, reads the packaged definitions in 0.1 s, Python's in 1.6 s.
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged_yaml(package: str, name: str) -> Any:
    """The content of the YAML file `name` below a package's folder."""
    return yaml.load((files(package) / name).read_bytes(), Loader=YAML_LOADER)
