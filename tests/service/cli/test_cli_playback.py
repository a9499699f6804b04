"""What `replay --tui` and `demo` say where they cannot open a screen."""

import gzip
import re
from importlib.resources import files
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.recording import Begun, Fed, entries
from ldlm_monitor.service.cli import main

LOG = Path(__file__).resolve().parents[3] / "examples/train_logs/train_20261121_083451_node0.log"
DEMO = Path(str(files("ldlm_monitor.finished.playback") / "demo.jsonl.gz"))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("demo",), "needs a terminal"),
        (("replay", "--tui", str(LOG)), "needs a terminal"),
        (("replay", "--tui", "--format", "json", str(LOG)), "leave one of them out"),
        (("replay", "--tui", "-"), "leave one of them out"),
        (("replay", "--tui", "--speed", "0", str(LOG)), '"0.0" for --speed. Must be > 0'),
        (("demo", "--speed", "nan"), '"nan" for --speed'),
        (("replay", "--speed", "3", str(LOG)), "add --tui"),
        (("replay", str(DEMO)), "add --tui"),
        (("replay", "--tui", str(DEMO), str(LOG)), "is played alone"),
    ],
)
def test_one_line_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reported: str
) -> None:
    assert reported in refused(capsys, *words)


def test_the_demo_is_small_and_names_no_machine() -> None:
    assert DEMO.stat().st_size < 300_000
    text = gzip.decompress(DEMO.read_bytes())
    places = set(re.findall(rb"(?<![\w.:/])/[\w.-]+(?=/)", text))
    assert places <= {b"/srv", b"/run", b"/__w"}, "the last is where PyTorch was built"
    first, *rest = entries(DEMO)
    assert isinstance(first, Begun)
    assert {each.run for each in rest if isinstance(each, Fed)} == {"lr-3e-3", "wide", "t2l"}
