"""Numbers that tell by their unit what they are: `11,251 tokens/s/device`, `1.25 s/it`."""

from __future__ import annotations

from collections.abc import Iterator

from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.parse.quantities import quantity

_PER_SECOND = (
    r" ?(?P<what>(?i:tokens?|toks?|samples?|sequences|seqs?|images?|imgs?|iterations|iters?|it"
    r"|steps?|batches))/s(?:ec(?:ond)?)?(?P<each>/(?i:device|gpu))?\b"
)
_PER_STEP = r"/(?P<step>(?i:iteration|iter|it|step|batch))\b"
_UNIT = compile_pattern(f"{_PER_SECOND}|{_PER_STEP}")
_BARE = compile_pattern(
    rf"(?:^|[\s|,(\[])(?P<amount>{{{{quantity}}}})(?:{_PER_SECOND}|{_PER_STEP})"
)
_COUNTED = {
    "tok": "tokens_per_second",
    "sam": "samples_per_second",
    "seq": "samples_per_second",
    "ima": "samples_per_second",
    "img": "samples_per_second",
    "it": "steps_per_second",
    "ste": "steps_per_second",
    "bat": "steps_per_second",
}
"""By how the counted thing begins."""


def rate_behind(text: bytes, start: int, amount: bytes) -> tuple[str, int] | None:
    """What an amount that ends at `start` is by the unit behind it, and where that ends."""
    match = _UNIT.match(text, start)
    if match is None:
        return None
    end = match.span()[1]
    if text[end:].lstrip()[:1] in (b"=", b":"):
        return None  # the next field's key
    name = _name(*match.groups(), amount=amount)
    return None if name is None else (name, end)


def bare_rates(text: bytes) -> Iterator[tuple[str, float, int, int]]:
    """Amounts that stand alone with such a unit: name, value, and from where to where."""
    for match in _BARE.finditer(text):
        amount, *unit = match.groups()
        name = _name(*unit, amount=amount or b"")
        value = quantity((amount or b"").decode("latin-1"))
        if name is not None and value is not None:
            yield name, value, *match.span()


def _name(
    what: bytes | None, each: bytes | None, step: bytes | None, *, amount: bytes
) -> str | None:
    if step is not None:
        return "step_seconds" if amount.endswith(b"s") else None
    counted = (what or b"").decode("latin-1").lower()
    name = next((name for begin, name in _COUNTED.items() if counted.startswith(begin)), None)
    if each is None:
        return name
    return "tokens_per_second_per_device" if name == "tokens_per_second" else None
