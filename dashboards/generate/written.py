"""A board as the JSON that is committed."""

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def as_json(board: Dashboard) -> str:
    """The same text at every run."""
    return JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"
