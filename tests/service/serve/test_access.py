"""Who may come in, by the header of the request."""

import asyncio
import base64

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.service.serve.access import Access

TOKEN = "5f0d1c2b3a49586776859403"


def hashed(password: str, prefix: bytes = b"2b") -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, prefix)).decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def access() -> Access:
    return Access({"ada": hashed("loves: engines"), "grace": hashed("gräce")}, [TOKEN])


def test_where_nothing_is_asked_anyone_may_come_in() -> None:
    open_to_all = Access({}, ())
    assert not open_to_all.is_required
    assert [asyncio.run(open_to_all.grant(header)) for header in ("", "Basic x", "Bearer y")] == [
        "anyone"
    ] * 3


@pytest.mark.parametrize(
    ("header", "grant"),
    [
        (basic("ada", "loves: engines"), "user"),
        (basic("grace", "gräce"), "user"),
        (basic("ada", "loves: engines").replace("Basic", "bAsIc"), "user"),
        (f"Bearer {TOKEN}", "token"),
        (f"bearer  {TOKEN} ", "token"),
        (basic("ada", "loves"), None),
        (basic("ada", ""), None),
        (basic("ada", "gräce"), None),
        (basic("Ada", "loves: engines"), None),
        (basic("nobody", "loves: engines"), None),
        (basic("", ""), None),
        (basic("ada", "x" * 100), None),
        (basic("ada", "loves: engines\0"), None),
        (basic("ada", "loves: engines").replace("Basic", "Bearer"), None),
        (f"Basic {TOKEN}", None),
        (f"Bearer {TOKEN}0", None),
        (f"Bearer {TOKEN[:-1]}", None),
        ("Bearer", None),
        ("Bearer \xe4", None),
        (TOKEN, None),
        ("Basic not base64!", None),
        ("Basic YWRh", None),
        ("Negotiate abc", None),
        ("", None),
    ],
)
def test_credentials_are_judged(access: Access, header: str, grant: str | None) -> None:
    assert asyncio.run(access.grant(header)) == grant
    assert asyncio.run(access.grant(header)) == grant, "nor does it matter what is remembered"


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
def test_nothing_else_opens_the_door(access: Access, header: str) -> None:
    assert asyncio.run(access.grant(header)) is None


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
def test_hashes_of_htpasswd_and_other_tools_are_known(prefix: str) -> None:
    access = Access({"ada": hashed("engines").replace("$2b$", prefix)}, ())
    assert asyncio.run(access.grant(basic("ada", "engines"))) == "user"


@pytest.mark.parametrize("text", ["engines", "", "$apr1$x$y", "$2b$04$short", "{SHA}abc"])
def test_what_is_no_hash_of_bcrypt_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match='"ada" is no bcrypt hash') as refused:
        Access({"ada": text}, ())
    assert not text or text not in str(refused.value)


@pytest.mark.parametrize(("length", "grant"), [(71, "user"), (72, "user"), (73, None)])
def test_a_password_has_at_most_as_many_bytes_as_bcrypt_looks_at(
    length: int, grant: str | None
) -> None:
    """A longer one would be as good as its first 72 bytes."""
    password = "x" * length
    access = Access({"ada": hashed(password[:72])}, ())
    assert asyncio.run(access.grant(basic("ada", password))) == grant


def test_results_of_the_last_256_passwords_are_cached() -> None:
    access = Access({"ada": hashed("engines")}, ())
    for number in range(300):
        assert asyncio.run(access.grant(basic("ada", f"guess {number}"))) is None
    assert len(access._cache) == 256
    kept = set(access._cache)
    asyncio.run(access.grant(basic("ada", "guess 299")))
    asyncio.run(access.grant(basic("ada", "guess 44")))
    assert set(access._cache) == kept, "the last 256 are cached"
    asyncio.run(access.grant(basic("ada", "guess 43")))
    assert set(access._cache) != kept, "the one before them is not"


def test_the_challenge_names_which_credentials_are_taken() -> None:
    both = Access({"ada": hashed("x")}, [TOKEN]).challenge
    assert both == 'Basic realm="ldlm-monitor", charset="UTF-8", Bearer realm="ldlm-monitor"'
    assert Access({}, [TOKEN]).challenge == 'Bearer realm="ldlm-monitor"'


def test_neither_password_nor_token_is_kept_as_it_was_sent(access: Access) -> None:
    asyncio.run(access.grant(basic("ada", "loves: engines")))
    kept = repr(list(vars(access).values()))
    assert "loves" not in kept
    assert TOKEN not in kept
