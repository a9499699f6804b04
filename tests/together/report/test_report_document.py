"""The report as a page, as Markdown and as JSON: from a log, by the command."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from ldlm_monitor.service.cli import main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples/train_logs"
BAD_LATENTS = EXAMPLES / "train_20261121_083451_node0.log"
BAD_TOKEN = EXAMPLES / "train_20261121_083515_node0.log"
HOSTILE = '<script>alert(1)</script> & "quoted" `code` [link](http://x) | cell'

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the report of some files and gives its text."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *files: Path | str) -> str:
        assert main(["report", "-o", name, *map(str, files)]) in (0, 3)
        return (tmp_path / name).read_text("utf-8")

    return run


class Page(HTMLParser):
    """What a browser would find: tags, text, and what would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def hostile_log(folder: Path) -> Path:
    """A run whose error, names and settings try to be markup, and hold a secret."""
    log = folder / "train_20260129_101500_node0.log"
    lines = [
        "*** Starting MMDiT with Joint Text-Latent Diffusion ***",
        *(f'{{"step": {step}, "loss": {2.5 - step / 100}}}' for step in range(40)),
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        f"RuntimeError: {HOSTILE} token=hf_abcdefghijklmnopqrstuvwxyz",
    ]
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return log


def test_the_json_is_what_its_schema_says(write: Write) -> None:
    reported = json.loads(write("r.json", BAD_LATENTS))
    schema = json.loads((ROOT / "docs/report.schema.json").read_text("utf-8"))
    jsonschema.validate(reported, schema)
    assert reported["schema"] == "ldlm.report/1"
    (run,) = reported["runs"]
    assert run["statistics"]["loss"]["nonfinite"] == 3
    assert sum(run["curves"]["loss"]["nonfinite"]) == 1


def test_a_page_begins_with_the_verdict_and_names_the_first_cause(write: Write) -> None:
    words = " ".join(Page(write("r.html", BAD_TOKEN)).words)
    parts = ("CRITICAL", "IndexError", "incident at 119", "What to do", "Incidents", "More charts")
    order = [words.index(text) for text in parts]
    assert order == sorted(order)
    assert "rank 1 logged an error of its own" in words


@pytest.mark.parametrize("name", ["r.txt", "r.md", "r.html"])
def test_every_form_has_the_cause_the_alert_the_issues_and_what_to_do(
    write: Write, name: str
) -> None:
    text = " ".join(re.sub(r"<[^>]*>", " ", write(name, BAD_TOKEN)).replace("\\", "").split())
    for part in (
        "rank 1 logged an error of its own",
        "TrainingCrashed rank 1",
        "gloo_peer_closed rank 0: RuntimeError",
        "lower L2T_SAVE_FREQ",
    ):
        assert part in text


def test_a_page_needs_nothing_else(write: Write) -> None:
    page = Page(write("r.html", BAD_TOKEN))
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)


def test_a_nan_and_every_charted_quantity_are_to_be_seen(write: Write) -> None:
    text = write("r.html", BAD_LATENTS)
    assert "not finite at 35" in text
    spoken = re.findall(r'role="img" aria-label="([^"]+)"', text)
    assert spoken[0].startswith(
        "loss, by step; from 4.8029 at 0 to 1.8825 at 299; not finite at 35;"
    )
    assert [each.partition(",")[0] for each in spoken][:3] == [
        "loss",
        "loss components",
        "accuracy",
    ]


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json"])
def test_no_secret_of_a_log_is_in_a_report(write: Write, tmp_path: Path, name: str) -> None:
    text = write(name, hostile_log(tmp_path))
    assert "RuntimeError" in text
    assert "hf_abcdef" not in text


def test_text_of_a_log_is_no_markup_of_the_page(write: Write, tmp_path: Path) -> None:
    page = Page(write("r.html", hostile_log(tmp_path)))
    assert page.tags.count("script") == 1  # the page's own
    assert any("<script>alert(1)</script>" in words for words in page.words)


def test_text_of_a_log_is_no_markup_of_the_markdown(write: Write, tmp_path: Path) -> None:
    """Outside of code every sign that could mean something is escaped."""
    text = write("r.md", hostile_log(tmp_path))
    prose = re.sub(r"(?ms)^```+text$.*?^```+$", "", text)
    assert "<script>" in text
    assert not re.search(r"(?<!\\)<script", prose)
    assert not re.search(r"(?<!\\)\[link", prose)


def test_a_run_of_one_step_has_no_chart(write: Write, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"step": 7, "loss": 2.5}\n', encoding="utf-8")
    page = Page(write("r.html", tmp_path / "one.jsonl"))
    assert "svg" not in page.tags
    assert "2.5" in page.words


def test_what_begins_and_ends_a_run_frames_its_timeline(write: Write) -> None:
    """Lines that report it have no time of their own there."""
    (run,) = json.loads(write("r.json", BAD_LATENTS))["runs"]
    texts = [entry["text"].partition(":")[0] for entry in run["timeline"]]
    assert (texts[0], texts[-1]) == ("run started", "run finished")


@pytest.mark.parametrize("name", ["r.txt", "r.md", "r.html"])
def test_a_run_that_was_killed_is_a_warning_though_nothing_fires(
    write: Write, tmp_path: Path, name: str
) -> None:
    """By Ctrl-C to torchrun, which a person knows of."""
    agent = "W0129 10:15:00 41 torch/distributed/elastic/agent/server/api.py:725]"
    lines = [f'{{"step": {step}, "loss": 2.5}}' for step in range(40)]
    lines.append(f"{agent} Received 2 death signal, shutting down workers")
    log = tmp_path / "train_20260129_101500_node0.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = write(name, log)
    assert "WARNING" in text
    assert "killed" in text
    assert "HEALTHY" not in re.sub("(?s)<style>.*</style>", "", text)


def test_several_runs_share_a_page(write: Write) -> None:
    page = Page(write("r.html", BAD_TOKEN, BAD_LATENTS))
    assert [link for link in page.links if link.startswith("#run")] == ["#run0", "#run1"]


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_a_log_without_a_training_makes_a_report_that_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.log").write_text("nothing\n", encoding="utf-8")
    assert main(["report", "-o", str(tmp_path / name), str(tmp_path / "empty.log")]) == 2
    assert "No training run was found" in (tmp_path / name).read_text("utf-8")


def test_an_unknown_ending_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "-o", "health.pdf", str(BAD_TOKEN)]) == 2
    assert capsys.readouterr().err == (
        'ldlm-monitor: --output health.pdf: cannot write a report as ".pdf"; '
        "end the name in .html, .md, .json or .txt\n"
    )
