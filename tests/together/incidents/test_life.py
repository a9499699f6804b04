"""What opens an incident, what belongs to it, what ends it; and what never becomes one."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.text.lines import transition_line
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.finished.report.plain_text import health_report
from ldlm_monitor.judge.core.assemble import assemble
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.incidents import Incidents, RunFacts
from ldlm_monitor.judge.incidents.clues import Clue, ranks_in
from ldlm_monitor.judge.incidents.incident import Incident
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.content import news_of
from ldlm_monitor.service.notify.message import from_transition, message_of
from ldlm_monitor.service.notify.slack_message import drawn
from ldlm_monitor.service.serve.pages import resource
from tests.judge.incidents.cascades import RUN, START, Line, agents, nccl_timeout, played

AT = 660.0
CRASH = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/job/train.py", line 31, in <module>',
    "[rank1]: ValueError: bad batch",
]
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB"
NOT_DESTROYED = "destroy_process_group() was not called before program exit"
FAILED = (
    "E0528 20:27:40.000000 701 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
    "(exitcode: 1) local_rank: 1 (pid: 48009) of binary: /usr/bin/python3"
)


def at(second: float, *texts: str, path: str = "node0.log") -> list[Line]:
    return [(second, path, text) for text in texts]


def later(lines: list[Line], seconds: float) -> list[Line]:
    return [(second + seconds, path, text) for second, path, text in lines]


def incidents(lines: list[Line]) -> tuple[IncidentView, ...]:
    return played(lines).snapshot().incidents


def steps(first: int, last: int, start: float) -> list[Line]:
    return [
        (start + step - first, "node0.log", f"[default0]:step {step}/1000 loss 2.3 lr 3e-4")
        for step in range(first, last)
    ]


def test_an_exception_that_the_program_catches_is_no_incident() -> None:
    assert incidents(steps(1, 40, 0.0) + at(40.0, *CRASH) + steps(40, 90, 41.0)) == ()


def test_words_of_failure_in_a_healthy_log_are_no_incident() -> None:
    harmless = [
        "+ echo 'ERROR: Invalid loss detected at step 3'",
        "NaN-safe training, timeout=1800, NCCL_DEBUG=WARN",
        "W1121 06:29:21.246000 14289 torch/x.py:1028] nothing of importance",
        "[rank0]:[W1121 06:15:01.1 ProcessGroupNCCL.cpp:1553] Warning: WARNING: " + NOT_DESTROYED,
    ]
    assert incidents(steps(1, 40, 0.0) + at(40.0, *harmless) + steps(40, 60, 41.0)) == ()


def test_a_critical_error_that_the_run_outlives_is_recovered() -> None:
    oom = [*CRASH[:2], OOM]
    (incident,) = incidents(steps(1, 40, 0.0) + at(40.0, *oom) + steps(40, 90, 43.0))
    assert (incident.state, incident.ended_reason) == ("recovered", "recovered")
    assert (incident.root.kind, incident.root.rank) == ("cuda_oom", 1)


def test_a_failure_after_the_run_went_on_is_another_incident() -> None:
    oom = [*CRASH[:2], OOM]
    lines = steps(1, 40, 0.0) + at(40.0, *oom) + steps(40, 300, 43.0)
    first, second = incidents(lines + at(310.0, *CRASH) + at(311.0, FAILED))
    assert (first.state, second.state) == ("recovered", "ended")
    assert (first.id, second.id) == (f"{RUN}/1", f"{RUN}/2")
    assert second.root.message == "ValueError: bad batch"


def test_a_restart_begins_another_incident() -> None:
    agent = "I1121 06:32:06.769000 14784 torch/distributed/elastic/agent/server/api.py:"
    restart = [
        f"{agent}901] [default] Worker group FAILED. 2/3 attempts left; will restart worker group",
        f"{agent}553]   restart_count=1",
        f"{agent}553]   global_ranks=[0, 1]",
    ]
    first = steps(1, 40, 0.0) + at(41.0, *CRASH) + at(42.0, FAILED, *restart)
    second = later(at(0.0, *CRASH) + at(1.0, FAILED), 50.0)
    one, two = incidents(first + second)
    assert (one.state, one.ended_reason) == ("ended", "restarted")
    assert two.state == "ended"
    assert (one.root.rank, two.root.rank) == (1, 1)


def test_a_stall_without_a_line_is_an_incident_that_progress_ends() -> None:
    monitor = played(steps(1, 94, 0.0), silence=400.0)
    (incident,) = monitor.snapshot().incidents
    assert (incident.root.kind, incident.confidence, incident.state) == (
        "hang_no_progress",
        "none",
        "open",
    )
    assert incident.alerts == ("TrainingStalled",)
    (later_on,) = incidents(steps(1, 94, 0.0) + steps(94, 150, 500.0))
    assert later_on.state == "recovered"


def test_a_stall_and_the_timeouts_that_follow_are_one_incident() -> None:
    ranks = [rank for rank in range(64) if rank != 37]
    lines = steps(1, 63, 0.0) + nccl_timeout(ranks, AT) + agents(AT + 61, 8, terminated=[37])
    (incident,) = incidents(lines)
    assert incident.root.rank == 37
    assert {"TrainingStalled", "NcclTimeout", "TrainingCrashed"} <= set(incident.alerts)


def test_numbers_that_are_not_finite_are_an_incident_of_their_own() -> None:
    lines = steps(1, 50, 0.0) + at(50.0, "[default0]:step 50 loss nan lr 3e-4")
    lines += [
        (51.0 + n, "node0.log", f"[default0]:step {51 + n} loss nan lr 3e-4") for n in range(99)
    ]
    nan, crash = incidents([*lines, *at(200.0, *CRASH), *at(201.0, FAILED)])
    assert (nan.root.kind, crash.root.kind) == ("nonfinite_metric", "python_exception")
    assert "NonFiniteLoss" in nan.alerts
    assert "TrainingCrashed" in crash.alerts


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("fr_dump", {"missing_ranks": [37]}),
        ("ras_status", {"missing": "37"}),
        ("ras_status", {"dead": [37]}),
    ],
)
def test_what_a_probe_finds_names_the_rank_and_confirms_silence(
    kind: str, fields: dict[str, object]
) -> None:
    ranks = [rank for rank in range(64) if rank != 37]
    monitor = played(steps(1, 60, 0.0) + nccl_timeout(ranks, AT, torch="2.6"))
    event = Event(
        kind=kind,
        severity="warning",
        run=RUN,
        message="asked while it hung",
        fields={"family": "nccl", "role": "evidence", **fields},  # type: ignore[dict-item]
        position=Position("", 0, 0),
    )
    monitor.observe([event], START + AT + 40)
    (incident,) = monitor.snapshot().incidents
    assert (incident.root.rank, incident.root.tier) == (37, "named")
    assert incident.confidence == "confirmed"


def fired(monitor: Monitor) -> list[Transition]:
    return [each for each in monitor.snapshot().transitions if each.state == "firing"]


def test_an_alert_names_the_first_cause_of_its_incident_on_its_line_and_in_slack() -> None:
    monitor = played(steps(1, 40, 0.0) + at(41.0, *CRASH) + at(42.0, FAILED))
    (crashed,) = (each for each in fired(monitor) if each.alert == "TrainingCrashed")
    assert crashed.cause == "ValueError: bad batch on rank 1 (node 0) [confirmed]"
    assert crashed.labels["rank"] == "1"
    assert monitor.snapshot().runs[0].failed_rank == 1
    assert transition_line(crashed).endswith(
        "cause: ValueError: bad batch on rank 1 (node 0) [confirmed]"
    )
    text = json.dumps(drawn(news_of(message_of(from_transition(crashed))))[1])
    assert "*First cause*" in text
    assert "ValueError: bad batch on rank 1" in text


def test_an_alert_names_the_rank_that_its_incident_names_not_the_one_that_reports_it() -> None:
    monitor = played(steps(1, 40, 0.0))
    now = START + 50.0
    wrong = Event(
        kind="megatron_result_validation",
        severity="critical",
        run=RUN,
        rank=0,
        message="Unexpected result nan on rank 37",
        fields={
            "family": "numerics",
            "role": "evidence",
            "reported_rank": 37,
            "traceback": "Traceback (most recent call last):",
        },
        position=Position("", 0, 0),
    )
    monitor.observe([wrong], now)
    monitor.tick(now + 60.0)
    (crashed,) = (each for each in fired(monitor) if each.alert == "TrainingCrashed")
    (incident,) = monitor.snapshot().incidents
    assert incident.root.rank == 37
    assert crashed.labels["rank"] == "37"


def test_a_secret_in_a_cause_does_not_leave() -> None:
    secret = "hf_" + "abcdefghijklmnopqrstuvwxyz0123456789"
    lines = [*CRASH[:2], f"[rank1]: ValueError: token {secret} is not valid"]
    monitor = played(steps(1, 40, 0.0) + at(41.0, *lines) + at(42.0, FAILED))
    (crashed,) = (each for each in fired(monitor) if each.alert == "TrainingCrashed")
    assert crashed.cause is not None
    assert secret not in transition_line(crashed)
    assert secret not in str(from_transition(crashed))
    assert secret not in health_report(monitor.snapshot())


def test_the_report_shows_cause_reasons_counts_contradiction_and_action() -> None:
    ranks = [rank for rank in range(64) if rank != 37]
    lines = steps(1, 60, 0.0) + nccl_timeout(ranks, AT) + agents(AT + 61, 8, terminated=[37])
    report = health_report(played(lines).snapshot())
    text = " ".join(report.split())
    assert max(map(len, report.splitlines())) <= 80
    for part in (
        "Incidents probable rank 37 did not join _REDUCE_SCATTER_BASE #7753 (gpu-node04)",
        "-> timeout on 63 ranks at step 59",
        "waiting 0-36,38-63, missing 37",
        "torchelastic blames rank 0: rank 0 itself waited",
        "nccl_collective_timeout 63 (ranks 0-36,38-63)",
        "While it hangs, take the stack of this rank",
    ):
        assert part in text


def test_the_api_gives_the_incidents_as_json() -> None:
    snapshot = played(steps(1, 40, 0.0) + at(41.0, *CRASH) + at(42.0, FAILED)).snapshot()
    document = json.loads(resource(snapshot, "incidents", str))
    assert set(document) == {"version", "at", "incidents"}
    (incident,) = document["incidents"]
    assert incident["root"]["rank"] == 1
    assert IncidentView.model_validate(incident) == snapshot.incidents[0]


class Following:
    """A monitor that reads files line by line. After a restart it reads them again."""

    def __init__(self) -> None:
        self.monitor = assemble(Settings(run=RUN))
        self._offsets: dict[str, tuple[int, int]] = {}
        self._fed: list[tuple[Chunk, float]] = []

    def read(self, lines: list[Line]) -> None:
        for second, path, text in lines:
            offset, number = self._offsets.get(path, (0, 1))
            data = f"{text}\n".encode()
            file = (1, sum(map(ord, path)), 0)
            self._fed.append((Chunk(path, file, offset, number, data), START + second))
            self.monitor.feed(*self._fed[-1])
            self._offsets[path] = offset + len(data), number + 1

    def restart(self) -> None:
        self.monitor = assemble(Settings(run=RUN))
        for chunk, now in self._fed:
            self.monitor.feed(chunk, now)

    def incidents(self) -> tuple[IncidentView, ...]:
        return self.monitor.snapshot().incidents


def test_an_incident_survives_a_restart_and_goes_on() -> None:
    ranks = [rank for rank in range(64) if rank != 37]
    stopped, whole = Following(), Following()
    for each in (stopped, whole):
        each.read(steps(1, 60, 0.0) + nccl_timeout(ranks, AT))
    before = stopped.incidents()
    stopped.restart()
    assert stopped.incidents() == before
    for each in (stopped, whole):
        each.read(agents(AT + 61, 8, terminated=[37]))
        each.monitor.tick(START + AT + 200)
    assert stopped.incidents() == whole.incidents()
    assert stopped.incidents()[0].root.rank == 37


def test_a_past_incident_survives_a_restart_as_it_was_shown() -> None:
    following = Following()
    following.read(steps(1, 40, 0.0) + at(40.0, *CRASH[:2], OOM) + steps(40, 300, 43.0))
    following.read(at(310.0, *CRASH) + at(311.0, FAILED))
    before = following.incidents()
    assert len(before) == 2
    following.restart()
    assert following.incidents() == before


def test_a_kernel_log_of_the_same_machine_belongs_to_the_incident_whatever_its_name() -> None:
    xid = (
        "May 28 20:27:38 gpu-node04 kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=48037, "
        "name=python3, GPU has fallen off the bus."
    )
    other = xid.replace("gpu-node04", "gpu-node99").replace("48037", "7")
    ranks = [rank for rank in range(64) if rank != 37]
    for line, kind in ((xid, "gpu_xid"), (other, "rank_hang")):
        training = Monitor()
        follow(training, at(58.0, line, path="dmesg.log"), "logs/dmesg.log")
        lines = steps(1, 63, 0.0) + nccl_timeout(ranks, AT, file_of=lambda _: "x")
        lines += agents(AT + 61, 8, terminated=[37])
        follow(training, lines, "logs/job9.log")
        training.tick(START + AT + 200)
        (incident,) = (each for each in training.snapshot().incidents if each.run == "job9")
        assert (incident.root.kind, incident.root.rank) == (kind, 37)


def follow(monitor: Monitor, lines: list[Line], path: str) -> None:
    offset = 0
    for number, (second, _, text) in enumerate(sorted(lines, key=itemgetter(0)), 1):
        data = f"{text}\n".encode()
        monitor.feed(Chunk(path, (1, len(path), 0), offset, number, data), START + second)
        offset += len(data)


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[3] / "docs/decisions.md").read_text("utf-8")
    shown = page.partition("```\n  probable")[2].partition("```")[0]
    path = Path(__file__).parents[2] / "judge/incidents/injected/hang.log"
    played = Replay(Settings(files=(str(path),), companions=False))
    list(played.transitions())
    printed = [line.strip() for line in health_report(played.snapshot()).splitlines()]
    assert shown.count("\n") == 6
    for line in f"probable{shown}".strip().splitlines():
        assert line.strip() in printed


def test_every_kind_that_can_be_a_cause_has_an_action() -> None:
    import yaml

    from ldlm_monitor.judge.incidents import clues
    from ldlm_monitor.logs.parse.definitions import load, packaged_files
    from ldlm_monitor.logs.parse.meanings import meaning_of_kind

    text = (Path(clues.__file__).parent / "data/actions.yml").read_text("utf-8")
    actions = yaml.safe_load(text)
    events = [event for path in packaged_files() for event in load(path).events]
    can_be = {each.kind for each in events if each.role in ("root", "evidence")}
    causes = {kind for kind in can_be if meaning_of_kind(kind).cause != "none"}
    assert len(causes) > 40
    assert causes <= set(actions)
    assert {tier.name.lower() for tier in clues.Tier} <= set(actions)
    assert all(isinstance(text, str) and len(text) < 400 for text in actions.values())


def test_a_kernel_log_hours_after_the_failure_does_not_change_its_cause() -> None:
    end = 1000.0
    facts = RunFacts(state="crashed", ended_at=end, logged_ranks={0, 1}, world_size=2)
    book = Incidents(lambda _: facts)
    line = Event(
        kind="nccl_collective_timeout",
        severity="critical",
        run="job",
        rank=0,
        message="timeout",
        fields={"role": "victim", "host": "gpu04", "seq": 5, "op_type": "ALLREDUCE"},
        position=Position("job.log", 9, 0),
    )
    for rank in (0, 1):
        book.take(replace(line, rank=rank), end)
    (before,) = book.views(end + 60)
    xid = replace(
        line,
        kind="gpu_xid",
        run="dmesg",
        rank=None,
        fields={"role": "root", "family": "host", "host": "gpu04"},
        position=Position("dmesg.log", 1, 0),
    )
    book.take(xid, end + 7200)
    after = {each.run: each for each in book.views(end + 7260)}
    assert after["job"].root == before.root


def test_a_view_is_built_again_however_often_its_cause_was_judged_in_between() -> None:
    # After some number of judgements, the newest one lies at the address of the one last viewed.
    for judgements in range(1, 9):
        incident = Incident("r", 1, 0.0)
        for number in range(1, 200):
            line = Event(
                kind="nccl_peer_closed",
                severity="info",
                run="r",
                message="closed",
                fields={"role": "context"},
                position=Position("a.log", number, 0),
            )
            incident.take(line, 1.0, fails=False)
            incident.answer(RunFacts(), 100.0)
            if number % judgements == 0:
                assert incident.view(RunFacts(), 100.0).events == number


def test_a_rank_that_logs_the_last_step_late_is_no_longer_behind() -> None:
    incident = Incident("r", 1, 0.0)
    incident.stall = Clue(
        "hang_no_progress", "root", "critical", 0.0, 0.0, "no step", Position("a.log", 1, 0)
    )
    steps = {0: 10, 1: 10, 2: 10, 3: 9}
    facts = RunFacts(state="stalled", step=10, logged_ranks=set(steps), rank_steps=steps)
    assert incident.judgement(facts, 100.0).verdict.rank == 3
    steps[3] = 10
    assert incident.judgement(facts, 101.0).verdict.rank is None


def test_a_line_that_repeats_a_long_range_of_ranks_costs_no_memory() -> None:
    tracemalloc.start()
    ranks = ranks_in("0-65535," * 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ranks) == 65536
    assert peak < 16 * 1024 * 1024
