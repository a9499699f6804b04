"""Genuine runs of the trainer: their companions, and their bytes as they arrived."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.companions import LaunchFacts, Surroundings, companions
from ldlm_monitor.logs.source.follower import Follower

UPSTREAM = Path(__file__).resolve().parents[2] / "together/corpus/runs/upstream"
RUNS = sorted(path for path in UPSTREAM.glob("*") if path.is_dir())


@pytest.fixture(params=RUNS, ids=lambda run: run.name)
def run(request) -> Path:
    return request.param


def test_a_runs_exact_values_are_found_beside_its_log(run):
    (log,) = run.glob("train_logs/*.log")
    first = log.read_bytes().splitlines()[0].decode()
    directory = first.removeprefix("Working directory: ")
    found = companions(log, LaunchFacts(working_directory=directory), Surroundings())
    assert [companion.path for companion in found] == [run / "saved/training_log.jsonl"]


def test_a_log_read_while_it_arrives_is_the_log(run, tmp_path):
    (log,) = run.glob("train_logs/*.log")
    (times,) = run.glob("*.times.jsonl")
    text, copy = log.read_bytes(), tmp_path / log.name
    rows = [json.loads(row) for row in times.read_text().splitlines()]
    arrivals = [row for row in rows if row["file"] == log.name] or [{"unix_time": 0.0}]
    follower = Follower()
    follower.add(copy)
    read = []
    with copy.open("ab", buffering=0) as writer:
        for row in [*arrivals, {**arrivals[-1], "offset_bytes": len(text)}]:
            writer.write(text[writer.tell() : row.get("offset_bytes", 0)])
            read += [c for c in follower.read(None, row["unix_time"]) if not c.peek]
    read += follower.finish()
    follower.close()
    assert b"".join(chunk.data for chunk in read) == text
    assert all(chunk.line == 1 + text[: chunk.offset].count(b"\n") for chunk in read)
