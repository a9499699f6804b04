"""A log gives the same records by any writer: a shell, PowerShell, Docker, Kubernetes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Origin
from ldlm_monitor.base.records import Record, Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.notices import Journal

LOGS = Path(__file__).parents[2] / "together/corpus/small"
NAMES = sorted(path.name for path in LOGS.iterdir() if path.suffix == ".log")
CONTAINERS = {"Docker", "CRI"}
ROWS = ["trainer_state.json", "llamafactory.jsonl"]
STAMP = "2025-01-21T04:41:07.283302001Z"


def docker(text: str) -> bytes:
    rows = [
        {"log": line, "stream": "stderr", "time": STAMP} for line in text.splitlines(keepends=True)
    ]
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def cri(text: str) -> bytes:
    return "".join(f"{STAMP} stderr F {line}\n" for line in text.split("\n")[:-1]).encode()


def windows(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


FORMS: dict[str, Callable[[str], bytes]] = {
    "Docker": docker,
    "CRI": cri,
    "CRLF": windows,
    "UTF-16": lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
    "UTF-16 with CRLF": lambda text: windows(text).decode().encode("utf-16"),
    "big-endian UTF-16": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
}


def records(path: Path, data: bytes) -> list[Record]:
    """What the file gives, without what the form changes: offsets in a line, times, line ends."""
    path.write_bytes(data)
    backlog, parser, origin = Backlog.new(path, Journal()), Parser(), Origin("r")
    found = [record for chunk in backlog.all(0.0) for record in parser.feed(chunk, origin, 0.0)]
    backlog.tail.close()
    found += parser.finish(str(path))
    return [bare(record) for record in found]


def bare(record: Record) -> Record:
    place = replace(record.position, offset=0)
    if isinstance(record, Sample):
        return replace(record, position=place, time=None, values=dict(record.values))
    return replace(record, position=place, time=None)


def in_order(found: list[Record]) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.parametrize(
    ("name", "form"),
    # A trainer's own file is not the output of a container.
    [
        (name, form)
        for name in (*NAMES, *ROWS)
        for form in FORMS
        if not (name in ROWS and form in CONTAINERS)
    ],
)
def test_a_log_in_another_form_gives_the_same_records(name: str, form: str, tmp_path: Path) -> None:
    text = (LOGS / name).read_text("utf-8")
    text = text if text.endswith("\n") else text + "\n"
    plain = records(tmp_path / name, text.encode())
    assert plain or name == "scary_words.log"
    assert in_order(records(tmp_path / name, FORMS[form](text))) == in_order(plain)
