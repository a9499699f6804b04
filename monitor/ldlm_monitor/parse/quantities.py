"""Numbers with units, as trainers print them: `420.87ms`, `52.78GiB`, `11,251`, `20.60%`."""

from __future__ import annotations

import re

from ldlm_monitor.parse.vocabulary import NUMBER, THOUSANDS, number, scaled

UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "%": 0.01,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "B": 1e9,
    "G": 1e9,
    "T": 1e12,
    "TFLOP": 1e12,
    "TFLOPs": 1e12,
    "TFLOPS": 1e12,
}
"""How much of the base unit (seconds, bytes, a ratio, a count) one of each is; `B` is a billion."""

QUANTITY = rf"(?:{THOUSANDS}|{NUMBER})(?: ?(?:(?:[mnu]?s|[KMGT]i?B|[kKMBGT]|TFLOP[sS]?)\b|%))?"
"""A quantity as a pattern: a number, with groups of thousands or a unit where it has some."""

_MAX_TEXT = 64
_PARTS = re.compile(rf"(?P<amount>{THOUSANDS}|{NUMBER}) ?(?P<unit>[A-Za-z%]{{1,6}})?")


def quantity(text: str, unit: str | None = None) -> float | None:
    """What a text says in base units; None where it says no quantity.

    `unit` is what the trainer is known to count in, whatever it prints: DeepSpeed's
    `3.96GB` are GiB.
    """
    amount, printed = number(text), None
    if amount is None:
        match = _PARTS.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
        if match is None:
            return None
        amount, printed = number(match["amount"].replace(",", "")), match["unit"]
    unit = printed if unit is None else unit
    if amount is None or unit is None:
        return amount
    return scaled(amount, UNITS[unit]) if unit in UNITS else None
