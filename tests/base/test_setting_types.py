"""What values a setting accepts, from a file and from a variable."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ldlm_monitor.base.setting_types import (
    BaseUrl,
    Discovery,
    Hosts,
    Labels,
    Listen,
    Name,
    Paths,
    Patterns,
    Seconds,
    SecondsFromZero,
    SecretUrl,
    Section,
    Url,
    Urls,
    UserPath,
    expanded,
    parse_json,
    split_commas,
    split_pairs,
)


def read(kind: Any, value: object) -> Any:
    return TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (Seconds, 0.5, 0.5), (Seconds, "90", 90.0), (SecondsFromZero, 0, 0.0),
        (Name, " a ", " a "), (Listen, "localhost:0", "localhost:0"),
        (Listen, "[::1]:65535", "[::1]:65535"),
        (Url, "https://host:9093/path?x=1", "https://host:9093/path?x=1"),
        (BaseUrl, "http://host/path/", "http://host/path"), (BaseUrl, "http://h", "http://h"),
        (Hosts, ["node-1.a_b", "b."], ("node-1.a_b", "b.")),
        (Patterns, os.pathsep.join(["a*", "", "b"]), ("a*", "b")),
        (Paths, os.pathsep.join(["a", "b/c"]), (Path("a"), Path("b/c"))),
        (Discovery, "runs.json", Path("runs.json")),
        (Labels, "team=nlp, site = a=b ,", {"team": "nlp", "site": "a=b"}),
        (Labels, {"_x1": "a"}, {"_x1": "a"}),
        (Urls, "http://a:1, https://b", ("http://a:1", "https://b")),
        (Urls, ["http://a"], ("http://a",)),
    ],
)  # fmt: skip
def test_a_setting_is_read(kind: Any, given: object, value: object) -> None:
    assert read(kind, given) == value


@pytest.mark.parametrize(
    ("kind", "given", "should"),
    [
        (Seconds, 0, "greater than 0"), (Seconds, -1, "greater than 0"),
        (Seconds, math.inf, "finite"), (Seconds, math.nan, "finite"),
        (Seconds, True, "should be a number"), (SecondsFromZero, -0.1, "greater than or equal"),
        (SecondsFromZero, False, "should be a number"), (SecondsFromZero, math.inf, "finite"),
        (Name, " \t", "should not be blank"), (Name, "", "should not be blank"),
        (Listen, "localhost", "HOST:PORT"), (Listen, ":80", "HOST:PORT"),
        (Listen, "a:", "HOST:PORT"), (Listen, "a:-1", "HOST:PORT"),
        (Listen, "a:65536", "HOST:PORT"), (Listen, "a:b", "HOST:PORT"),
        (Url, "host:9093", "URL of a host"), (Url, "ftp://host", "URL of a host"),
        (Url, "http://", "URL of a host"), (Url, "http://bob@host", "no user or password"),
        (Url, "http://:pw@host", "no user or password"),
        (BaseUrl, "http://host/?a", "without query"), (BaseUrl, "http://host/#a", "without query"),
        (BaseUrl, "http://host/a b", "without query"), (BaseUrl, "http://b@host", "no user"),
        (Hosts, ["a b"], "host's name"), (Hosts, ["http://a"], "host's name"),
        (Hosts, ["a:80"], "host's name"), (Hosts, [""], "host's name"),
        (Discovery, "runs.yml", "ends in .json"),
        (Labels, {"1a": "x"}, "without a digit"), (Labels, {"__a": "x"}, "without a digit or __"),
        (Labels, {"a-b": "x"}, "letters, digits"), (Labels, {"run": "x"}, "not be a label that"),
        (Labels, {"severity": "x"}, "not be a label that"), (Labels, "team=", "not be blank"),
        (SecretUrl, "host/secret", "begins with https://"),
        (SecretUrl, "ftp://host", "begins with https://"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_with_what_it_should_be(
    kind: Any, given: object, should: str
) -> None:
    with pytest.raises(ValidationError, match=should):
        read(kind, given)


@pytest.mark.parametrize("url", ["https://hooks.example/secret", "http://host/secret"])
def test_a_secret_url_is_not_printed(url: str) -> None:
    secret = read(SecretUrl, url)
    assert secret.get_secret_value() == url
    assert "secret" not in repr(secret)


def test_a_table_has_no_other_keys_and_does_not_show_what_was_given() -> None:
    class Table(Section):
        seconds: Seconds = 1.0

    with pytest.raises(ValidationError, match="extra") as error:
        Table.model_validate({"password": "hunter2"})
    assert "hunter2" not in str(error.value)
    with pytest.raises(ValidationError, match="frozen"):
        Table().seconds = 2.0


def test_a_comma_in_quotes_does_not_part_a_variable() -> None:
    assert split_commas('a, run=~"a,b" ,,c') == ["a", 'run=~"a,b"', "c"]
    assert split_commas(r'a="x\",y",b') == [r'a="x\",y"', "b"]
    assert split_commas('a"b,c') == ['a"b', "c"]
    assert split_commas(" , ") == []


def test_a_variable_of_pairs_may_have_blanks() -> None:
    assert split_pairs("evaluating=900, checkpointing = 1800,") == {
        "evaluating": "900", "checkpointing": "1800",
    }  # fmt: skip
    assert split_pairs("alone") == {"alone": ""}


def test_a_table_in_a_variable_is_json() -> None:
    assert parse_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="should be a table; in a variable, as JSON"):
        parse_json("{a}")


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert expanded(Path("~/runs")) == Path("/home/ada/runs")
    assert read(UserPath, "~/runs") == Path("/home/ada/runs")
    assert read(Paths, ["~/a", "b"]) == (Path("/home/ada/a"), Path("b"))
