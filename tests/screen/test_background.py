"""Whether the terminal is light: its answer is read and no key is lost, however both arrive."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from textual import events

from ldlm_monitor.screen.background import AnswerParser, BackgroundSeen, light_or_dark

LIGHT = "\x1b]11;rgb:ffff/ffff/e0e0\x1b\\"
DARK = "\x1b]11;rgb:1e/1e/2e\x07"
ATTRIBUTES = "\x1b[?62;22c"


def parsed(*reads: str) -> tuple[list[str], list[str]]:
    """Keys and themes of what was read, piece by piece."""
    parser = AnswerParser()
    messages = [message for data in reads for message in parser.feed(data)]
    messages += parser.feed("")
    keys = [each.key for each in messages if isinstance(each, events.Key)]
    return keys, [each.theme for each in messages if isinstance(each, BackgroundSeen)]


def test_variables_say_whether_the_background_is_light() -> None:
    for value, theme in (
        ("0;15", "textual-light"),
        ("15;0", "textual-dark"),
        ("12;default;7", "textual-light"),
        ("7;8", "textual-dark"),
        ("", "textual-dark"),
        ("mad", "textual-dark"),
    ):
        assert light_or_dark({"COLORFGBG": value}) == theme
    assert light_or_dark({}) == "textual-dark"


def test_an_answer_is_a_theme_and_no_key() -> None:
    assert parsed(LIGHT + ATTRIBUTES) == ([], ["textual-light"])
    assert parsed(DARK, ATTRIBUTES) == ([], ["textual-dark"])


def test_a_part_of_a_colour_has_one_to_four_digits() -> None:
    for colour, theme in (
        ("8/8/7", "textual-light"),
        ("7/7/8", "textual-dark"),
        ("7f/7f/7f", "textual-dark"),
        ("fff/fff/fff", "textual-light"),
        ("00/ff/00", "textual-light"),
        ("ff/00/ff", "textual-dark"),
    ):
        assert parsed(f"\x1b]11;rgb:{colour}\x07{ATTRIBUTES}") == ([], [theme])


def test_a_terminal_that_only_says_what_it_is_answers_nothing() -> None:
    assert parsed(f"j{ATTRIBUTES}k") == (["j", "k"], [])
    assert parsed("j\x1b", "[A", f"k{ATTRIBUTES}") == (["j", "up", "k"], [])


@given(st.lists(st.integers(0, 60), max_size=6), st.sampled_from([LIGHT, DARK]), st.text("2jq"))
def test_keys_before_between_and_after_are_kept_however_the_input_is_cut(
    cuts: list[int], answer: str, typed: str
) -> None:
    whole = f"{typed}{answer}{typed}{ATTRIBUTES}{typed}\x1b[B"
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    keys, themes = parsed(*pieces)
    assert keys == [*typed * 3, "down"]
    assert len(themes) == 1
