"""Secrets are hidden, and what only looks like one stays readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.base.text.sanitize import without_escapes as plain
from ldlm_monitor.base.text.secrets import REDACTED, is_secret_name

HEX40 = "0123456789abcdef0123456789abcdef01234567"

SECRETS = [
    ("openai key sk-abcDEF1234567890abcdEFGH end", "openai key [redacted] end"),
    ("sk-proj-Ab1_cD2-eF3gH4iJ5kL6", "[redacted]"),
    ("sk-ant-api03-Ab1cD2eF3gH4iJ5", "[redacted]"),
    ("token hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345 used", "token [redacted] used"),
    ("ghp_0123456789abcdefABCDEF0123456789abcd", "[redacted]"),
    ("github_pat_11ABCDEFG0123456789_abcdefghij", "[redacted]"),
    ("glpat-Ab1cD2eF3gH4iJ5kL6mN", "[redacted]"),
    ("xoxb-1234567890-abcdefghij", "[redacted]"),
    ("xoxe.xoxp-1-Mi0yLTEyMzQ1Njc4", "[redacted]"),
    ("id AKIAIOSFODNN7EXAMPLE.", "id [redacted]."),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[redacted]"),
    ("wandb_v1_AbCdEfGhIjKlMnOpQrStUv", "[redacted]"),
    ("nvapi-AbCdEfGhIjKlMnOpQrStUv-1", "[redacted]"),
    ("cut_hf_AbCdEfGhIjKlMnOpQrSt", "cut_[redacted]"),
    ("Authorization: Bearer abc", "Authorization: [redacted]"),
    ("'Authorization': 'Basic YWJjOmRlZg==', 'x': 1", "'Authorization': '[redacted]', 'x': 1"),
    ("sent Bearer 0a1b2c3d4e", "sent Bearer [redacted]"),
    ("--secret-key' : \"hunter2xyz", "--secret-key' : \"[redacted]"),
    ("--api-token -> hunter2a9B7c6D5e4", "--api-token -> [redacted]"),
    ("Set-Cookie: session=1; Path=/", "Set-Cookie: [redacted]"),
    ("+ export AWS_SECRET_ACCESS_KEY=wJalr/bPx", "+ export AWS_SECRET_ACCESS_KEY=[redacted]"),
    ("AWS_SESSION_TOKEN='two words' next", "AWS_SESSION_TOKEN='[redacted]' next"),
    (f"WANDB_API_KEY={HEX40}", "WANDB_API_KEY=[redacted]"),
    (f"+ wandb login --relogin {HEX40}", "+ wandb login --relogin [redacted]"),
    (f"wandb.login(key='{HEX40}')", "wandb.login(key='[redacted]')"),
    ("HF_TOKEN: abc", "HF_TOKEN: [redacted]"),
    ("CI_TOKEN=abc", "CI_TOKEN=[redacted]"),
    ("password=hunter2, user=bob", "password=[redacted] user=bob"),
    ('{"db_password": "a\\"b c", "lr": 1}', '{"db_password": "[redacted]", "lr": 1}'),
    (r"{\"api_key\": \"a b\", \"lr\": 1}", r"{\"api_key\": \"[redacted]\", \"lr\": 1}"),
    ("--api-key abc --lr 3e-4", "--api-key [redacted] --lr 3e-4"),
    ("x-api-key: abc", "x-api-key: [redacted]"),
    ("postgres://bob:p@ss@db:5432/runs", "postgres://[redacted]@db:5432/runs"),
    ("https://0123456789abcdef01234567@o1.ingest.io/2", "https://[redacted]@o1.ingest.io/2"),
    ("at https://hooks.slack.com/services/T0/B0/Xy9 x", "at https://hooks.slack.com/[redacted] x"),
    ("https://discord.com/api/webhooks/1/ab-c", "https://discord.com/api/webhooks/[redacted]"),
    ("https://api.telegram.org/bot1:ab/send", "https://api.telegram.org/bot[redacted]/send"),
    ("s3 GET /x?a=1&X-Amz-Signature=abc&b=2", "s3 GET /x?a=1&X-Amz-Signature=[redacted]&b=2"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_ end", "jwt [redacted] end"),
    (
        "a -----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY----- b",
        "a [redacted] b",
    ),
    ("passwd: hunter2", "passwd: [redacted]"),
    ("-passwd hunter2 --passwd=hunter2", "-passwd [redacted] --passwd=[redacted]"),
    ('{"passwd": "a b"}', '{"passwd": "[redacted]"}'),
    ("/run/secrets/db_passwd: hunter2", "/run/secrets/db_passwd: [redacted]"),
    ("torn -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "torn [redacted]"),
]  # fmt: skip

HARMLESS = [
    "cat: /etc/passwd: Permission denied",
    "root:x:0:0 is line 1 of /etc/passwd:1: root",
    f"commit {HEX40}",
    f"sha256:{HEX40}{HEX40[:24]}",
    "550e8400-e29b-41d4-a716-446655440000",
    "train_20260129_101500_node0.log",
    "run sk-learn-regression-model-v2",
    "task-0123456789abcdef0123",
    "hf_transfer is enabled, hf_hub_download of meta-llama/Llama-3-8B",
    "tokens: 1024 | tokens_per_second=123.4 | max_tokens=2048 | token_id=50256",
    "pad_token=<pad> eos_token: </s> Token: 5",
    "PWD=/data/run OLDPWD=/home",
    "tcp://10.0.0.1:29500 git@github.com:a/b.git ssh://git@github.com/a/b",
    "https://github.com/a/b/pull/1#issuecomment-2",
    "[rank3]: loss=nan grad_norm=inf lr=1e-4 Loss: 2.3456",
    "NCCL WARN Call to ibv_modify_qp failed with error No such device",
    "secretary: Bob, passing: 3, keyboard: us, monkey=1",
    "12:34:56 10.0.0.1:52312 [0] NCCL INFO Channel 00/24",
]


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_a_secret_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [text for text, _ in SECRETS])
def test_redacting_again_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(before=st.text(), after=st.text())
def test_a_key_is_hidden_wherever_it_stands(before: str, after: str) -> None:
    key = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    assert key not in redact(f"{before} {key} {after}")


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Z", "Cc", "Cs"])))
def test_any_text_can_be_redacted_and_printed(text: str) -> None:
    shown = plain(redact(text))
    shown.encode()
    assert not any(char < " " and char not in "\n\t" for char in shown)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]8;;https://evil.example\x07here\x1b]8;;\x1b\\", "here"),
        ("a\rb\r\nc\x0bd\u2028e", "a\nb\nc\nd\ne"),
        ("a\tb", "a\tb"),
        ("nul\x00bell\x07del\x7f", "nulbelldel"),
        ("txt\u202egpj.exe zero\u200bwidth\ufeff", "txtgpj.exe zerowidth"),
        ("lone \ud83d, pair \ud83d\ude00", "lone \ufffd, pair 😀"),
        ("unfinished \x1b", "unfinished "),
    ],
)
def test_plain_text_is_what_a_terminal_shows(raw: str, shown: str) -> None:
    assert plain(raw) == shown


def test_an_escape_sequence_cannot_hide_a_key() -> None:
    assert redact(plain("sk-\x1b[0mabcDEF\u200b1234567890abcdEFGH")) == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "\x9b Cookie: session=IsKt4NEYHz5tj6rMQ6ZWHrqRZIGybeiq",  # the escape takes the C along
        "to\x1b[0mken=IsKt4NEYHz5tj6rMQ6ZWHrqRZIGybeiq",  # the escape splits the name
    ],
)
def test_an_escape_sequence_does_not_hide_a_secret_from_the_redactor(text: str) -> None:
    assert "IsKt4NEYHz5tj6rMQ6ZWHrqRZIGybeiq" not in redact(text)


@pytest.mark.parametrize(
    ("word", "is_hidden"),
    [
        ("aB3dE5gH", True), ("aB3dE5g", False),  # eight characters, and seven
        ("abcdEFGH12", False), ("abcDE12f", True),  # two changes of kind, and three
        ("abcdefghij", False), ("TrainingConfiguration", False), ("x9f4k2m7q1w8", True),
        ("aB3d.E5gH-aB3d", False), ("aB3dE5gHi.x", True),  # each part between signs is looked at
        ("/data/aB3dE5gH", False), ("~/aB3dE5gHi", False), ("./aB3dE5gHi", False),
    ],
)  # fmt: skip
def test_a_value_of_a_vague_name_is_hidden_where_it_looks_random(
    word: str, is_hidden: bool
) -> None:
    shown = REDACTED if is_hidden else word
    assert redact(f"session: {word} x") == f"session: {shown} x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("http://host:8080<a@b", "http://host:8080<a@b"),
        ("http://host:65535/a@b", "http://host:65535/a@b"),
        ("http://host:655350/a@b", "http://[redacted]@b"),
        ("http://bob:/a@b", "http://[redacted]@b"),
        ("http://bob:12345@b", "http://[redacted]@b"),
        ("http://:hunter2@b", "http://[redacted]@b"),
        ("http://bob:8080a/b@c", "http://[redacted]@c"),
    ],
)
def test_a_port_is_told_from_a_password(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "password=none", "api_key: null", "secret = True", "password: ***", "password=[redacted]",
        "password=", "api_key: Optional", "--password --lr 3", "--api-key -> --lr",
        "password: 'None',", "api_key=-",
    ],
)  # fmt: skip
def test_a_name_without_a_value_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--password -x", "--password [redacted]"),
        ("password='none of it'", "password='[redacted]'"),
        ("key: abcDEF012345abcDEF012345", "key: [redacted]"),
        ("key: abcdef012345abcdef012345", "key: abcdef012345abcdef012345"),
        ("key: ABCDEF012345ABCDEF012345", "key: ABCDEF012345ABCDEF012345"),
        ("key: abcDEFghiJKLabcDEFghiJKL", "key: abcDEFghiJKLabcDEFghiJKL"),
        ("key: abcDEF012345abcDEF01234", "key: abcDEF012345abcDEF01234"),  # one too short
        ("docker login -u bob -p abc", "docker login -u bob -p [redacted]"),
        ("mysql -u bob -pabc runs", "mysql -u bob -p[redacted] runs"),
        ("mkdir -p abc", "mkdir -p abc"),
        ("curl -u bob:abc http://host", "curl -u bob:[redacted] http://host"),
        ("HTTPBasicAuth('bob', 'abc')", "HTTPBasicAuth([redacted])"),
        ("create secret --from-literal=a=b", "create secret --from-literal=a=[redacted]"),
        ("<password>abc</password>", "<password>[redacted]</password>"),
        ("https://hc-ping.com/0-1-2 x", "https://hc-ping.com/[redacted] x"),
    ],
)  # fmt: skip
def test_what_stands_beside_a_value_says_whether_it_is_a_secret(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "name", ["api_key", "DB_PASSWORD", "client-key-data", "hf_token", "secrets"]
)
def test_a_name_may_say_that_its_value_is_a_secret(name: str) -> None:
    assert is_secret_name(name) is True


@pytest.mark.parametrize("name", ["token", "key", "keyboard", "password_file", "lr", ""])
def test_a_name_that_is_none_of_a_secret_says_nothing(name: str) -> None:
    assert is_secret_name(name) is False


def test_all_secrets_of_a_text_are_hidden() -> None:
    text = f"password=abc hf_AbCdEfGhIjKlMnOpQrSt http://a:b@c {HEX40} api_key: x"
    assert redact(text) == (
        f"password={REDACTED} {REDACTED} http://{REDACTED}@c {HEX40} api_key: {REDACTED}"
    )
