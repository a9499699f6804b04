"""Words, punctuation and drawn rules of other languages and writers, put as English text has them.

Keys and lines of unknown form are read after this, so that all else needs no language but one.
"""

import re
from functools import cache, lru_cache
from typing import NamedTuple

from ldlm_monitor.base.text.yaml_loader import packaged_yaml
from ldlm_monitor.logs.parse.patterns import compile_pattern

_DATA = packaged_yaml(__package__, "data/words.yml")
# Python's `re` ignores the case of `ı`, too: it matches `i`, and `i̇` is how `İ` is lowered.
_MEANINGS: dict[str, str] = {
    word.replace("ı", "i"): english
    for english, languages in _DATA["words"].items()
    for words in languages.values()
    for word in words
}
_MARKS = str.maketrans({mark: put for put, marks in _DATA["marks"].items() for mark in marks})
_BARE = re.compile(r"[ -~]+|[^\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+")
"""Text of scripts that part words by blanks: not Chinese, Japanese or Korean."""
_LETTER = "[\u3040-\u306d\u306f-\u30fb\u4e00-\u7683\u7685-\u9fff\uac00-\ud7af]"
"""A letter of those, but for の and 的: a word directly behind an unlisted one is a part of another
word, as `步` in `同步`."""
_COUNTED = "[轮輪行个個次条條]"
"""Behind a number, what it counts: `验证损失 3 轮未改善` gives no loss."""
_ORDINAL = re.compile(r"第\s*(\d+(?: ?/ ?\d+)?)\s+(epoch|step|iteration|batch)\b")
_MAX_CACHED = 4096
"""Keys in the cache, a choice as in `vocabulary`."""


def _spellings(word: str) -> set[str]:
    return {word, word.capitalize(), word.upper()}


TRIGGERS = tuple(
    "(?:" + "|".join(sorted(set().union(*(_spellings(each) for each in words)))) + ")"
    for meaning in ("loss", "epoch", "step", "iteration", "accuracy")
    for words in _DATA["words"][meaning].values()
)
"""What lines of other languages have that are looked at."""
_ASCII_WORDS = compile_pattern(
    r"(?i)\b(?:" + "|".join(word for word in _MEANINGS if word.isascii()) + r")+(?:[^a-z]|$)"
)


class _Patterns(NamedTuple):
    run: re.Pattern[str]
    word: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """A run of words that name one thing, `perda de validação`; and one word of it."""
    words = sorted(_MEANINGS, key=lambda word: (-len(word), word))
    parted = "|".join(re.escape(each) for each in words if _BARE.fullmatch(each))
    glued = "|".join(re.escape(each) for each in words if not _BARE.fullmatch(each))
    joins = "|".join(map(re.escape, _DATA["joins"]))
    run = (
        rf"(?<![^\W\d_])(?:{parted})+(?: (?:(?:{joins}) ?)?(?:{parted})+)*(?![^\W\d_])"
        rf"|(?<!{_LETTER})(?:{glued})(?: ?(?:{joins})?(?:{glued}))*(?! ?\d+ ?{_COUNTED})"
    )
    return _Patterns(re.compile(run, re.I), re.compile(f"{parted}|{glued}", re.I))


def _english(run: re.Match[str]) -> str:
    found = _patterns().word.findall(run[0])
    words = [_MEANINGS[word.lower().replace("ı", "i").replace("i\u0307", "i")] for word in found]
    text = " ".join(words)
    return text if _BARE.fullmatch(run[0]) else f" {text} "


def translated(text: bytes) -> bytes:
    """A line with the English words for those of other languages, and plain marks."""
    if text.isascii() and _ASCII_WORDS.search(text) is None:
        return text
    given = text.decode("utf-8", "surrogateescape").translate(_MARKS)
    english = _patterns().run.sub(_english, given)
    return _ORDINAL.sub(r"\2 \1", english).encode("utf-8", "surrogateescape")


@lru_cache(maxsize=_MAX_CACHED)
def english_key(key: str) -> str:
    """A key in English; itself if it has no word of another language."""
    return translated(key.encode("utf-8", "replace")).decode("utf-8", "replace").strip()
