"""Pages: what is made of the code is up to date, every alert has one, no link leads nowhere."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.judge.core.packaged_rules import packaged_alerts
from ldlm_monitor.service.cli import main
from ldlm_promrules.alerting import load_rules
from ldlm_promrules.promql import parse

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
GENERATOR = runpy.run_path(str(DOCS / "generate.py"))
MADE = GENERATOR["pages"]()
RUNBOOK = sorted(path for path in (DOCS / "runbook").glob("*.md") if path.stem != "index")


def section(page: str, title: str) -> str:
    """The text below a heading."""
    found = re.search(rf"^## {title}\n\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def test_what_is_made_of_the_code_is_up_to_date() -> None:
    stale = [name for name, text in MADE.items() if (DOCS / name).read_text("utf-8") != text]
    assert stale == [], "run `python docs/generate.py`"


def test_every_setting_says_what_it_means() -> None:
    assert all(meaning for *_, meaning in GENERATOR["settings"]())


def test_every_alert_has_its_page_and_no_page_is_left_of_one_that_is_gone() -> None:
    raised = set(GENERATOR["alerts"]())
    assert set(packaged_alerts()) <= raised
    assert {path.stem for path in RUNBOOK} == raised


@pytest.mark.parametrize("path", RUNBOOK, ids=lambda path: path.stem)
def test_a_page_of_the_runbook_says_what_it_means_why_and_what_to_do(path: Path) -> None:
    page = path.read_text("utf-8")
    for title in ("Meaning", "Why", "What to do"):
        assert section(page, title), title
    assert "```promql" in section(page, "The rule")


def test_messages_of_alertmanager_lead_to_these_pages() -> None:
    for config in ("prometheus", "fleet"):
        text = (ROOT / f"deploy/{config}/alertmanager.yml").read_text("utf-8")
        (page,) = re.findall(r"blob/main/(docs/runbook/\S+\.md)\|", text.replace(" ", ""))
        for alert in packaged_alerts():
            assert (ROOT / page.replace("{{.Labels.alertname}}", alert)).is_file()


def test_a_function_is_supported_or_not_but_not_both() -> None:
    names = re.compile(r"`([a-z_0-9]+)`")
    table, _, rest = MADE["promql.md"].partition("<!-- end of tables -->")
    lacking = set(names.findall(section(rest, "Not supported"))) - {"histogram_quantile"}
    assert {"info", "limitk", "histogram_avg"} <= lacking
    assert not lacking & set(names.findall(table))


def test_the_reference_tells_every_metric_once() -> None:
    rows = re.findall(r"^\| `(ldlm_\w+)` \| (\w+) \|", MADE["metrics.md"], re.MULTILINE)
    assert sorted(rows) == sorted((metric.name, metric.kind) for metric in METRICS.values())


def test_the_rule_that_is_shown_can_be_loaded(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(groups:.*?)```", (DOCS / "writing.md").read_text(), re.DOTALL)
    assert shown is not None
    path = tmp_path / "mine.yml"
    path.write_text(shown[1])
    (rule,) = load_rules([path], parse).alerts
    assert {"summary", "description", "action"} == set(rule.annotations)


def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """Strictly: a link, a heading or a file in the repository that is not there fails."""
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/runbook/NonFiniteLoss/index.html").is_file()
    assert not list((tmp_path / "site").rglob("*.py"))


def test_a_link_into_the_repository_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pages = tmp_path / "docs"
    (pages / "hooks").mkdir(parents=True)
    (pages / "index.md").write_text("# Page\n\n[gone](../deploy/gone.yml)\n")
    (pages / "hooks/links.py").write_text((DOCS / "hooks/links.py").read_text())
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: x\nrepo_url: https://example.org/x\nhooks: [docs/hooks/links.py]\n"
        "exclude_docs: /hooks/\n"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "../deploy/gone.yml, which is not there" in done.stderr


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    """One command installs and runs the main job, one installs and passes the tests."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.split()) <= 900
    first, *_ = re.findall(r"^```sh\n(.*?)\n```$", readme, re.MULTILINE | re.DOTALL)
    assert first == "sh setup.sh && .venv/bin/ldlm-monitor --once examples/train_logs/*.log"
    assert "```sh\nsh tests/run.sh\n```" in readme


def test_the_first_command_says_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    logs = sorted(map(str, (ROOT / "examples/train_logs").glob("*.log")))
    assert main(["--once", *logs]) == 3
    (counts,) = re.findall(r": (\d CRITICAL[^.]+)\. The critical one makes the exit code 3", readme)
    assert f"3 runs: {counts}" in capsys.readouterr().out


def test_what_the_readme_says_is_found_are_alerts() -> None:
    table = section((ROOT / "README.md").read_text("utf-8"), "What it finds")
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", table))
    assert len(named) > 20
    assert named <= set(packaged_alerts())


def test_every_page_is_in_the_sites_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"([\w/]+\.md)$", navigation, re.MULTILINE)
    pages = {path.name for path in DOCS.glob("*.md")} | {"runbook/index.md"}
    assert sorted(named) == sorted(pages)
