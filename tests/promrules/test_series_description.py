"""Values of series are those that promtool takes, and no others."""

import math

import pytest

from ldlm_promrules.promql.series_description import parse_values


@pytest.mark.parametrize("text", ["Infx3", "NaNx2", "-infx1", "1+Infx3"])
def test_a_word_takes_no_repetition(text: str) -> None:
    with pytest.raises(ValueError, match="no values"):
        list(parse_values(text))


def test_words_are_numbers_where_they_stand_alone() -> None:
    assert list(parse_values("Inf -Inf Inf+1x1")) == [math.inf, -math.inf, math.inf, math.inf]
