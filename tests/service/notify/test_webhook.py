"""A webhook of one's own: the body of the contract, signed as Standard Webhooks has it."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import ValidationError, validate

from ldlm_monitor.base.errors import ConfigError, DeliveryError
from ldlm_monitor.service.notify.apprise import apprise_services
from ldlm_monitor.service.notify.message import Notification, message_of
from ldlm_monitor.service.notify.webhook import WebhookSender, webhook_body

SCHEMA = Path(__file__).parents[3] / "docs/webhook.schema.json"
SECRET = "5f0d1c2b3a49586776859403"
NAN = Notification(
    key="NonFiniteLoss{run=gpt}",
    alert="NonFiniteLoss",
    state="firing",
    severity="critical",
    reason="condition holds",
    run="gpt",
    rank="3",
    step=100,
    line="loss: nan <!channel> *bold*",
    path="train.log",
    line_number=7,
    offset=420,
    summary="gpt: the loss is NaN",
    description="",
    action="Stop.",
    labels={"run": "gpt", "severity": "critical", "rank": "3"},
    value=float("nan"),
    started_at=1_769_681_700.0,
    at=1_769_681_700.5,
)


def test_the_body_is_a_transition_as_the_contract_has_it() -> None:
    line = "🔴 gpt: loss NaN at step 9, rank 3 → stop and mend it"
    assert json.loads(webhook_body(replace(NAN, headline=line))) == {
        "text": line,
        "time": 1_769_681_700.5,
        "alert": "NonFiniteLoss",
        "state": "firing",
        "reason": "condition holds",
        "labels": {"run": "gpt", "severity": "critical", "rank": "3"},
        "annotations": {"summary": "gpt: the loss is NaN", "action": "Stop."},
        "value": "NaN",
        "position": {"path": "train.log", "line": 7, "offset": 420},
    }


def test_the_body_has_the_page_of_the_run_where_people_reach_one() -> None:
    linked = replace(NAN, link="https://monitor.example/runs/gpt")
    assert json.loads(webhook_body(linked))["link"] == "https://monitor.example/runs/gpt"


def test_the_body_is_of_the_schema_that_is_documented() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    validate(json.loads(webhook_body(NAN)), schema)
    validate(json.loads(webhook_body(replace(NAN, link="https://monitor.example/"))), schema)
    with pytest.raises(ValidationError):
        validate({"alert": "NonFiniteLoss"}, schema)


def test_a_receiver_can_check_the_signature_and_knows_a_repeat(slack) -> None:
    webhook = WebhookSender(slack.url, secret=SECRET, clock=lambda: 1_769_681_701.9)
    webhook.send(message_of(NAN))
    webhook.send(message_of(NAN))
    webhook.send(message_of(replace(NAN, state="resolved")))
    (headers, body), (again, _), (other, _) = slack.posted
    signed = f"{headers['webhook-id']}.1769681701.".encode() + body
    digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert headers["webhook-timestamp"] == "1769681701"
    assert headers["webhook-id"] == again["webhook-id"] != other["webhook-id"]


def test_without_a_secret_nothing_is_signed(slack) -> None:
    WebhookSender(slack.url).send(message_of(NAN))
    assert slack.posted[0][0]["webhook-signature"] is None


def test_a_secret_in_standard_form_is_base64(slack) -> None:
    key = bytes(range(24))
    WebhookSender(slack.url, secret="whsec_" + base64.b64encode(key).decode()).send(message_of(NAN))
    headers, body = slack.posted[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


@pytest.mark.parametrize("secret", ["short", "whsec_no base64 at all", "whsec_c2hvcnQ="])
def test_a_secret_that_protects_nothing_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError, match="too short"):
        WebhookSender("https://example.org", secret=secret)


@pytest.mark.parametrize(
    "url", ["http://example.org/x", "ftp://example.org", "https://", "https://ü"]
)
def test_a_url_that_is_not_safe_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        WebhookSender(url)
    assert "example" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "permanent"), [(500, False), (429, False), (410, True), (302, False)]
)
def test_what_is_not_accepted_is_an_error_with_the_servers_retry_after(
    slack, status: int, permanent: bool
) -> None:
    slack.answers = [(status, {"Retry-After": "30"}, b"")]
    with pytest.raises(DeliveryError) as refused:
        WebhookSender(slack.url).send(message_of(NAN))
    assert refused.value.permanent is permanent
    assert refused.value.retry_after == 30
    assert "s3cr3tpath" not in str(refused.value)


def test_a_service_of_apprise_gets_plain_text(slack) -> None:
    (service,) = apprise_services([slack.url.replace("http", "json")])
    service.send(message_of(NAN))
    posted = json.loads(slack.posted[0][1])
    assert service.name == "apprise json"
    assert posted["title"] == "🔴 gpt: NonFiniteLoss firing"
    assert posted["message"].splitlines() == [
        "the loss is NaN",
        "Alert NonFiniteLoss firing (critical), Run gpt, Rank 3, Step 100, Log train.log:7",
        "loss: nan ‹!channel> *bold*",
        "What to do: Stop.",
        "since 2026-01-29 10:15:00 UTC",
    ]
    assert posted["type"] == "failure"


def test_a_service_that_refuses_is_tried_again(slack, caplog: pytest.LogCaptureFixture) -> None:
    slack.answers = [(500, {}, b"")]
    (service,) = apprise_services([slack.url.replace("http://", "json://user:passw0rd@")])
    with pytest.raises(DeliveryError, match="apprise json did not accept the message"):
        service.send(message_of(NAN))
    assert "passw0rd" not in caplog.text


def test_services_of_one_kind_have_names_of_their_own_and_an_unknown_one_is_refused() -> None:
    twice = ["json://a.example/", "json://b.example/"]
    assert [each.name for each in apprise_services(twice)] == ["apprise json", "apprise json 2"]
    with pytest.raises(ConfigError, match="URL 2 is not one") as refused:
        list(apprise_services([twice[0], "nothing://token@x"]))
    assert "token" not in str(refused.value)
