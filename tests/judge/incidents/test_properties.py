"""The outcome does not depend on how files are ordered or cut; nothing that comes is too odd."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.incidents import Incidents, RunFacts
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.definitions import Role
from ldlm_monitor.logs.parse.run_names import RunNames

LOGS = Path(__file__).parent / "injected"
NODES = ("nodes_raise", "nodes_kill", "nodes_kill_record")
NOW = 1_780_000_000.0
KINDS = sorted(
    {
        *("nccl_collective_timeout", "nccl_work_failure_status", "elastic_worker_failed"),
        *("elastic_failure_table", "elastic_restart", "elastic_sigterm_peer", "fr_dump"),
        *("python_exception", "gloo_timeout", "gloo_peer_closed", "collective_mismatch"),
        *("ddp_param_mismatch", "monitored_barrier_failed", "gpu_xid", "host_oom_kill"),
        *("slurm_cancelled", "nccl_heartbeat_stuck", "nccl_ib_completion_error", "run_started"),
        *("nonfinite_metric", "nccl_desync_report", "ras_status", "no_such_kind", "cxx_terminate"),
    }
)
FIELDS = (
    *("seq", "pg_rank", "pg_guid", "pid", "exitcode", "local_rank", "timeout_ms", "ran_ms"),
    *("missing_ranks", "missing", "ranks", "rank_a", "rank_b", "shape_a", "op_a", "reporter"),
    *("other_rank", "last_enqueued", "host", "peer", "reason", "restart_count", "signal"),
    *("global_ranks", "exc_type", "traceback", "class", "stuck_seconds", "what", "state"),
)
VALUES = st.one_of(
    st.none(),
    st.integers(-(10**12), 10**12),
    st.integers(0, 5),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["0-3,7", "1, 2", "never_joined", "SIGKILL", "9-3", "TIME LIMIT"]),
    st.lists(st.integers(-1, 4), max_size=3),
)
ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["rank", "pid", "exitcode", "local_rank", "root", "message", "role", "kind"]
        ),
        st.one_of(st.none(), st.integers(-20, 5), st.text(max_size=6), st.just("ValueError: x")),
    ),
    max_size=4,
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    fields = draw(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
    fields["role"] = draw(st.sampled_from([*get_args(Role), "unknown"]))
    fields["family"] = draw(st.sampled_from(["nccl_torch", "cuda", "host", "process", "progress"]))
    kind = draw(st.sampled_from(KINDS))
    if kind == "elastic_failure_table":
        fields["failures"] = draw(ROWS)
    return Event(
        kind=kind,
        severity=draw(st.sampled_from(["info", "warning", "error", "critical"])),
        run="r",
        rank=draw(st.one_of(st.none(), st.integers(0, 9), st.just(10**9))),
        node=draw(st.sampled_from([None, "0", "1", "gpu07"])),
        time=draw(st.one_of(st.none(), st.floats(NOW - 1e4, NOW + 1e4))),
        message=draw(st.text(max_size=20)),
        fields=fields,
        position=Position(draw(st.sampled_from(["a", "b"])), draw(st.integers(1, 99)), 0),
    )


@given(st.lists(st.tuples(events(), st.floats(0.0, 400.0)), max_size=25), st.data())
def test_no_sequence_of_events_is_too_odd(
    logged: list[tuple[Event, float]], data: st.DataObject
) -> None:
    now, run = NOW, RunFacts()
    book = Incidents(lambda _: run)
    for event, pause in logged:
        now += pause
        run = RunFacts(
            state=data.draw(st.sampled_from(["running", "stalled", "crashed", "finished"])),
            ended_at=data.draw(st.sampled_from([None, now])),
            last_progress_at=now - data.draw(st.sampled_from([0.0, 30.0, 500.0])),
            world_size=data.draw(st.sampled_from([None, 1, 4])),
        )
        book.take(event, now)
        list(book.reasons("r", now))
    run = RunFacts()
    for incident in book.views(now + 100):
        assert IncidentView.model_validate_json(incident.model_dump_json()).id == incident.id
        assert incident.root.rank is None or incident.root.ranks == str(incident.root.rank)


@cache
def events_of(name: str) -> tuple[tuple[Event, ...], ...]:
    """The events of each file of an injected failure of two nodes."""
    found = []
    for node, path in enumerate(sorted((LOGS / name).iterdir())):
        parser = Parser()
        chunk = Chunk(path.name, (1, node, 0), 0, 1, path.read_bytes(), final=True)
        records = parser.feed(chunk, Origin("r", str(node), None), NOW) + parser.finish(path.name)
        found.append(tuple(record for record in records if isinstance(record, Event)))
    return tuple(found)


@given(st.sampled_from(NODES), st.randoms(use_true_random=False))
def test_the_order_in_which_files_are_read_does_not_change_the_outcome(name, random) -> None:
    """Lines of one file keep their order; those of two files come in any."""
    queues = [list(each) for each in events_of(name)]
    merged = []
    while any(queues):
        merged.append(random.choice([queue for queue in queues if queue]).pop(0))
    assert outcome(merged) == outcome([event for each in events_of(name) for event in each])


def outcome(events_logged: list[Event]) -> list[IncidentView]:
    run = RunFacts(state="crashed", ended_at=NOW, logged_ranks={0, 1, 2, 3})
    book = Incidents(lambda _: run)
    for event in events_logged:
        book.take(event, NOW)
    return list(book.views(NOW + 60))


@given(st.sampled_from(["hang.log", "raise.log", "segv.log", "shape.log"]), st.data())
def test_how_a_file_is_cut_does_not_change_the_outcome(name: str, data: st.DataObject) -> None:
    body = (LOGS / name).read_bytes()
    ends = [index + 1 for index, byte in enumerate(body) if byte == 10]
    cuts = data.draw(st.lists(st.sampled_from(ends), max_size=6, unique=True).map(sorted))
    assert fed(body, cuts) == fed(body, [])


def fed(body: bytes, cuts: list[int]) -> tuple[IncidentView, ...]:
    monitor = Monitor(names=RunNames("r"))
    for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        line = body.count(b"\n", 0, start) + 1
        monitor.feed(Chunk("a.log", (1, 1, 0), start, line, body[start:stop]), NOW)
    monitor.finish(NOW + 60, ["a.log"])
    return monitor.snapshot().incidents
