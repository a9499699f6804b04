"""Writes every board as JSON."""

from pathlib import Path

from .boards import boards
from .written import as_json

for each in boards():
    path = Path(__file__).parents[1] / f"{each.uid}.json"
    path.write_text(as_json(each), encoding="utf-8")
    print(path.name)
