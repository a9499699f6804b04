"""Every example and counter-example of every packaged definition file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.meaning import AccusingKind, Meaning
from ldlm_monitor.base.names import SEVERITIES
from ldlm_monitor.base.records import Event, Record, SampleBlock
from ldlm_monitor.logs.parse import Parser, definitions
from ldlm_monitor.logs.parse.coverage import try_examples
from ldlm_monitor.logs.parse.definitions import KindMeaning
from ldlm_monitor.logs.parse.made_events import Seen, made_event
from ldlm_monitor.logs.parse.meanings import meaning_of, meaning_of_kind


def test_what_kinds_mean_is_read_whole_though_only_the_heads_of_the_files_are() -> None:
    made = definitions.document(definitions.PACKAGED / "made.yml")["meanings"]
    read = [definitions.load(path).meanings for path in definitions.packaged_files()]
    for meanings in (*read, {kind: KindMeaning.model_validate(made[kind]) for kind in made}):
        for kind, said in meanings.items():
            found = meaning_of_kind(kind)
            assert found.words == {*said.words}, kind
            assert (found.fault, found.counts, found.lasts) == (said.fault, said.counts, said.lasts)


def test_whatever_readers_and_looks_at_hosts_see_makes_an_event_of_a_family_and_role() -> None:
    families = {definitions.load(path).family for path in definitions.packaged_files()}
    made = [made_event(seen) for seen in get_args(Seen)]
    assert {each.role for each in made} <= {*get_args(definitions.Role)}
    assert {each.family for each in made} <= families
    assert {each.severity for each in made} <= {*SEVERITIES}


@pytest.mark.parametrize("path", definitions.packaged_files(), ids=lambda path: path.stem)
def test_the_examples_of_a_definition_file_give_exactly_what_is_beside_them(path: Path) -> None:
    trial = try_examples(path, definitions.load(path), Parser())
    assert trial.failures == []
    assert trial.examples > 0


OWN = """
format: ours
meanings:
  ours:
    cause: external
    is: [timeout, look]
    shows: [gpu, memory]
    pause: [checkpointing, running]
    accuses: {how: missing, order: 3}
    cases:
      - {when: {what: '^disk'}, ends: killed, cause: hardware}
      - {when: {what: full, severity: critical}, lasts: true}
events:
  - kind: ours
    role: root
    severity: critical
    shapes: [{trigger: 'OURS: ', pattern: 'OURS: (?P<what>.*)'}]
    examples: [{line: 'OURS: a thing', fields: {what: a thing}}]
"""


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("OURS: a thing", {}),
        ("OURS: disk lost", {"ends": "killed", "cause": "hardware"}),
        ("OURS: disk is full", {"ends": "killed", "cause": "hardware", "lasts": True}),
        ("OURS: full disk", {"lasts": True}),
    ],
)
def test_an_event_of_a_users_file_carries_what_the_file_says_of_it(
    tmp_path: Path, line: str, changes: dict[str, object]
) -> None:
    (tmp_path / "ours.yml").write_text(OWN)
    parser = Parser([tmp_path / "ours.yml"])
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, f"{line}\n".encode(), final=True)
    (event,) = parser.feed(chunk, Origin("r"), 0.0)
    assert isinstance(event, Event)
    own = Meaning(
        cause="external",
        words=frozenset({"timeout", "look"}),
        shows=frozenset({"gpu", "memory"}),
        pause=("checkpointing", "running"),
        accuses=AccusingKind("missing"),
    )
    assert meaning_of(event) == replace(own, **changes)  # type: ignore[arg-type]
    forged = replace(event, fields={**event.fields, "meaning": {"ends": "paused"}})
    assert meaning_of(forged) == Meaning(cause="local")
    assert meaning_of(forged, "victim") == Meaning()


BESIDE = """
format: beside
events:
  - kind: seen
    role: context
    severity: info
    at: beside
    shapes: [{trigger: 'loss|it/s|Traceback', pattern: 'loss|it/s|Traceback'}]
    examples: [{line: 'loss'}]
"""


@pytest.mark.parametrize(
    "lines",
    [
        "step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.2\n",
        "home-made 1 - loss 2.5\nhome-made 2 - loss 2.4\nhome-made 3 - loss 2.2\n",
        "".join(f"\r{n}%|#   | {n}/100 [00:{n:02}<01:00, 1.0it/s, loss={n}]" for n in range(9)),
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no\n',
        "epoch 1: loss of rank 3 is nan\nCUDA out of memory. Tried to allocate 2 GiB, loss 1\n",
    ],
)
def test_what_stands_beside_takes_nothing_from_a_record(tmp_path: Path, lines: str) -> None:
    (tmp_path / "beside.yml").write_text(BESIDE)
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, lines.encode(), final=True)
    found, before = (
        [*singles(Parser(files).feed(chunk, Origin("r"), 0.0))]
        for files in ([tmp_path / "beside.yml"], [])
    )
    others = [each for each in found if not (isinstance(each, Event) and each.kind == "seen")]
    seen = [each for each in lines.splitlines() if re.search("loss|it/s|Traceback", each)]
    assert len(found) - len(others) == len(seen) > 0
    assert repr(others) == repr(before)  # as NaN is not equal to NaN


def singles(found: Iterable[Record | SampleBlock]) -> Iterator[Record]:
    for each in found:
        yield from each.samples() if isinstance(each, SampleBlock) else (each,)
