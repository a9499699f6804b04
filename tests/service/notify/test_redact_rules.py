"""The redactor against secrets in general: a planted list, and a maintained rule set."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest
import re2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ldlm_monitor.base.text.sanitize import plain, redact
from tests.service.notify.planted import KEY_FILES, LINES, NEEDLES, PLANTED, found_in

plugins = pytest.importorskip("detect_secrets.plugins", reason="detect-secrets is not installed")
from detect_secrets.plugins.base import RegexBasedDetector  # noqa: E402

NO_SECRETS = {"IPPublicDetector"}
SHORTEST = {"ArtifactoryDetector": 27}
"""`AP` and eight characters are a word more often than a password."""
DELIMITERS = ' =:"\t\r\n\v\f'
"""Its Artifactory rules count the character before a password as part of it."""
_ANY = re.compile("")
REVEALING = {"IbmCloudIamDetector": re.compile("(?i)ibm|iam|cloud|pass|pwd|token|api.?key")}
"""Whatever is called just `key` is more often that of a cache."""


def detectors() -> Iterator[RegexBasedDetector]:
    for module in pkgutil.iter_modules(plugins.__path__):
        found = importlib.import_module(f"{plugins.__name__}.{module.name}")
        for _, kind in inspect.getmembers(found, inspect.isclass):
            if issubclass(kind, RegexBasedDetector) and not inspect.isabstract(kind):
                yield kind()


DETECTORS = {
    type(each).__name__: each for each in detectors() if type(each).__name__ not in NO_SECRETS
}


@pytest.mark.parametrize("name", DETECTORS)
def test_what_detect_secrets_takes_for_a_secret_is_hidden(name: str) -> None:
    """Of each of its rules, strings that fit."""
    detector = DETECTORS[name]
    ascii_only = st.characters(min_codepoint=32, max_codepoint=126)
    rules = [re.compile(rule.pattern, rule.flags & re.IGNORECASE) for rule in detector.denylist]
    forms = [st.from_regex(rule, fullmatch=True, alphabet=ascii_only) for rule in rules]
    seen = 0

    @settings(
        max_examples=30,  # fewer may hold no string that the detector accepts
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(forms))
    def check(text: str) -> None:
        nonlocal seen
        for secret in detector.analyze_string(text):
            if len(secret.strip(DELIMITERS)) >= SHORTEST.get(name, 3) and REVEALING.get(
                name, _ANY
            ).search(text):
                seen += 1
                assert secret not in redact(text), text

    check()
    assert seen or name == "JwtTokenDetector", "a string that only looks like one is none"


def test_there_are_rules_to_compare_with() -> None:
    assert len(DETECTORS) > 20


@pytest.mark.skipif(version("detect-secrets") != "1.5.0", reason="counted in version 1.5.0")
def test_a_part_of_its_rules_cannot_run_in_linear_time() -> None:
    """Which is why they are the measure of ours, and not ours: docs/security.md."""
    rules = [rule.pattern for each in detectors() for rule in each.denylist]
    options = re2.Options()
    options.log_errors = False
    refused = 0
    for rule in rules:
        try:
            re2.compile(rule, options)
        except re2.error:
            refused += 1
    assert (refused, len(rules)) == (13, 46)


@pytest.mark.parametrize("line", LINES)
def test_a_planted_secret_is_hidden_in_its_line_and_anywhere(line: str) -> None:
    assert found_in(line)
    for before, after in (("", ""), ("[rank3]: ", " (retrying)"), ('{"m": "', '"}'), ("é\n", "\n")):
        assert found_in(redact(before + line + after)) == []
    assert found_in(plain(line)) == []


@pytest.mark.parametrize("kind", KEY_FILES)
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "    "])
def test_a_private_key_is_hidden_whole_and_line_by_line(kind: str, prefix: str) -> None:
    lines = [prefix + line for line in KEY_FILES[kind]]
    assert found_in("\n".join(lines))
    for first in range(len(lines)):
        assert found_in(redact("\n".join(lines[first:]))) == []
        assert found_in(redact(lines[first])) == []


def test_the_words_around_a_secret_stay() -> None:
    text = f"step 12 loss 2.5 key {PLANTED['hugging face']} then step 13"
    assert redact(text) == "step 12 loss 2.5 key [redacted] then step 13"


@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=40)), max_size=4), st.text())
def test_no_text_around_it_shows_a_secret(lines: list[str], between: str) -> None:
    assert found_in(redact(f" {between}\n ".join(lines))) == []


def test_the_planted_list_is_not_empty() -> None:
    assert len(NEEDLES) > 40
    assert all(len(needle) >= 12 for needle in NEEDLES)


@pytest.mark.parametrize(
    "text",
    [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "weights sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "APPROXIMATE APEXTRACTOR1 ACCURACY SKIPPED",
        "key: 5, keys 7, monkey = 1, forward pass: 3",
        "class_token: 0.5 cloud_key_points = 12",
        "x" * 64,
        "1.0it/s, 12:34:56 < 1:00:00, shard 00012-of-00064",
        "nodes: dgx-[001-064] users: 12",
    ],
)
def test_what_only_looks_alike_stays(text: str) -> None:
    assert redact(text) == text
