"""What was and what was not checked, in every view of a run."""

import json

import pytest

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.report.document import report
from ldlm_monitor.finished.report.html import page
from ldlm_monitor.finished.report.plain_text import health_report, markdown
from ldlm_monitor.service.serve.pages import resource
from tests.judge.core.test_tenses import EXIT_CODE_0, Log, rows, steps


@pytest.fixture(scope="module")
def spiked() -> Snapshot:
    """A run whose loss spiked once, and which finished."""
    losses = {step: f"{2.5 + 0.01 * (step % 7)}" for step in range(1, 901)} | {301: "25.0"}
    lines = [text for step, loss in losses.items() for text in steps(step, step, loss)]
    lines.append(EXIT_CODE_0)
    log = Log().write(lines)
    log.end()
    return log.snapshot


def test_text_markdown_page_and_api_say_what_is_over_and_what_was_not_looked_for(
    spiked: Snapshot,
) -> None:
    text, document = " ".join(health_report(spiked).split()), report(spiked)
    assert "HEALTHY a finished" in text
    assert "Over warning LossSpike" in text
    assert ": it recovered" in text
    assert "no eval_loss: EvalNonFinite, Overfitting not looked for" in text
    assert "End shown by its exit code (a.log:901)" in text
    for view in (markdown(document), page(document)):
        assert "it recovered" in view
        assert "not looked for" in view
    (run,) = json.loads(resource(spiked, "runs", str))["runs"]
    assert [(each["name"], each["over_by"]) for each in run["past"]] == [("LossSpike", "recovered")]
    assert (run["end_reason"], run["end_position"]["line"]) == ("exit_code", 901)
    assert {"eval_loss", "grad_norm"} <= {each["quantity"] for each in run["not_checked"]}
    assert all(each["check"] and each["why"] and each["log"] for each in run["not_checked"])


def test_firing_does_not_stand_above_alerts_of_a_run_that_is_over() -> None:
    log = Log().write([*steps(1, 60), *steps(61, 90, "NaN"), EXIT_CODE_0])
    log.end()
    text = health_report(log.snapshot)
    assert "\nFired at its end\n" in text
    assert "\nFiring\n" not in text


def test_a_healthy_run_without_a_loss_is_not_said_to_have_nothing_wrong() -> None:
    log = Log().write([*rows(1, 200, lr="1e-4"), EXIT_CODE_0])
    log.end()
    (run,) = report(log.snapshot).runs
    assert run.health == "HEALTHY"
    assert run.said == "nothing is wrong in what was checked: finished, step 200; no loss"
