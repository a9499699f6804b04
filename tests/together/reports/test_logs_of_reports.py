"""Finished logs as in public reports of trainings: what a person must read of each at night.

Each log is made here, by the report that its name cites, with few steps. `words` stand in the
health's reasons, the alerts' or the incident's texts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.backtest.decision_score import decision_of
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

BEGIN = datetime(2026, 3, 7, 1, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Report:
    """A report's log, and what must hold: `rank` and `step` None are not asked."""

    lines: Callable[[], Iterable[str]]
    health: str
    decision: str
    alerts: frozenset[str] = frozenset()
    rank: int | None = None
    step: int | None = None
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    ending: str = "log"


def at(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (BEGIN + timedelta(seconds=seconds)).strftime(form)


def near(level: float, step: int) -> float:
    """A value that is not constant."""
    return round(level * (1 + 0.2 * ((step * 7919) % 101) / 101), 4)


def policy(step: int, **changed: object) -> str:
    row = {"loss": near(0.02, step), "grad_norm": near(0.4, step), "learning_rate": 1e-6}
    row |= {"reward": near(0.5, step), "kl": near(0.01, step), "entropy": near(0.9, step)}
    return str(row | changed).replace("'nan'", "nan")


def filtered_loss() -> Iterable[str]:
    bad = {"grad_norm": "nan", "entropy": "nan", "kl": "nan"}
    return [policy(step, **(bad if step == 60 else {})) for step in range(120)]


def counted_loss(share: float) -> Iterable[str]:
    shares = (share if step == 60 else 0.0 for step in range(120))
    return [policy(step, frac_non_finite_loss=each) for step, each in enumerate(shares)]


def silent_nan() -> Iterable[str]:
    bad = {"loss": 0.0, "entropy": "nan", "kl": "nan"}
    return [policy(step, **(bad if step >= 60 else {})) for step in range(120)]


def vanished(then: str) -> Iterable[str]:
    for step in range(1, 300):
        loss = f'"loss": {near(7, step)}, ' if step <= 80 else then
        time = BEGIN.timestamp() + 2 * step
        yield f'{{"step": {step}, "time": {time}, {loss}"lr": {near(1, step)}}}'


def aborted_at_exit() -> Iterable[str]:
    for step in range(1, 75):
        yield policy(step, **{"global_step/max_steps": f"{step}/74"})
        yield f"Train: {step * 100 // 74:3d}%|####| {step}/74 [00:00<00:01, 26.08s/it]"
    yield "[INFO:swift] last_model_checkpoint: /mnt/checkpoint/checkpoint-74"
    yield "[INFO:swift] End time of running main: 2025-09-11 16:19:22.473503"
    yield (
        "E0911 16:21:58.831000 325 torch/distributed/elastic/multiprocessing/api.py:869]"
        " failed (exitcode: -6) local_rank: 0 (pid: 470) of binary: /opt/conda/bin/python"
    )


GONE = (
    "UNAVAILABLE: Task /job:jax_worker/replica:0/task:{0} heartbeat timeout. This indicates that"
    " the remote task has failed, got preempted, or crashed unexpectedly."
)
IN_ERROR = (
    "/job:jax_worker/replica:0/task:{0} has been set to ERROR in coordination service: " + GONE
)


def t5x() -> Iterable[str]:
    for step in range(1, 199, 3):
        for host in range(3):
            stamp = at(3 * step, "I%m%d %H:%M:%S")
            yield f"{stamp}.45111{host} 14064171856281{host} trainer.py:501] Training: step {step}"
    stamp = at(760)
    yield f"{stamp}.140058: E external/xla/coordination_service.cc:954] {IN_ERROR.format(37)}"
    for host in range(3):
        yield (
            f"{stamp}.14070{host}: F external/xla/pjrt/distributed/client.h:75] Terminating process"
            " because the coordinator detected missing heartbeats. Status: " + GONE.format(37)
        )


def maxtext() -> Iterable[str]:
    for step in range(120):
        yield (
            f"completed step: {step}, seconds: {near(2.1, step)}, TFLOP/s/device: 413.4,"
            f" Tokens/s/device: 7800.1, total_weights: 1048576, loss: {near(6, step)}"
        )
    stamp = at(300, "E%m%d %H:%M:%S")
    yield f"{stamp}.140058    4242 coordination_service.cc:1190] {IN_ERROR.format(3)}"


def preempted(starts: int) -> Iterable[str]:
    yield f"[INFO|trainer.py:2300] {at(0)},100 >> ***** Running training *****"
    yield from (policy(step) for step in range(30))
    yield f"[INFO|trainer.py:3900] {at(900)},100 >> Saving model checkpoint to /out/checkpoint-300"
    when = at(904, "%Y-%m-%dT%H:%M:%S")
    yield f"slurmstepd: error: *** JOB 91234 ON gpu07 CANCELLED AT {when} DUE TO PREEMPTION ***"
    for start in range(1, 1 + starts):
        stamp = at(904 + 420 * start)
        yield f"[INFO|trainer.py:2300] {stamp},100 >> Loading model from /out/checkpoint-300."
        for rank in range(2):
            yield f"[rank{rank}]: Traceback (most recent call last):"
            yield f'[rank{rank}]:   File "/app/train.py", line 88, in <module>'
            yield f"[rank{rank}]:     trainer.train(resume_from_checkpoint=True)"
            yield (
                f"[rank{rank}]: safetensors_rust.SafetensorError: Error while deserializing header:"
                " MetadataIncompleteBuffer"
            )


def fairseq(*, ooms: int, fails: bool) -> Iterable[str]:
    for number in range(60):
        if number in range(20, 20 + ooms):
            yield (
                f"{at(11 * number)} | WARNING | fairseq.trainer | OOM: Ran out of memory with"
                " exception: CUDA out of memory. Tried to allocate 68.00 MiB (GPU 0; 15.90 GiB"
                " total capacity; 14.76 GiB already allocated; 55.75 MiB free; 14.88 GiB reserved"
                " in total by PyTorch)"
            )
            yield "| Allocated memory      |   15046 MB |   15114 MB |   14505 GB |   14490 GB |"
            yield (
                f"{at(11 * number)} | WARNING | fairseq.trainer |"
                " attempting to recover from OOM in forward/backward pass"
            )
        yield (
            f"{at(11 * number)} | INFO | train_inner | epoch 001: {100 * number:6d} / 9000"
            f" loss={near(5, number)}, ppl=17.1, num_updates={100 * number}, lr=0.0001,"
            f" gnorm={near(1.1, number)}, loss_scale=16, wall={11 * number}"
        )
    if fails:
        yield "Traceback (most recent call last):"
        yield '  File "train.py", line 14, in <module>'
        yield (
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling"
            " `cublasSgemm( handle, opa, opb, m, n, k)`"
        )


def tokenizing() -> Iterable[str]:
    """Its clock stands still: bars have no time, and c10d's has no year."""
    yield f"[{at(0)},000] [INFO] [axolotl.utils.data:123] [PID:1111] [RANK:0] Loading dataset"
    yield ""
    for part in range(92):
        bar = f"{part:3d}%|####      | {part * 3590}/359152 [{part // 4:02d}:00<02:55, 180.0it/s]"
        yield f"Tokenizing Prompts (num_proc=64): {bar}"
    socket = "SocketImpl(fd=79, addr=[localhost]:41170, remote=[localhost]:29500)"
    yield (
        f"[rank1]:[W516 01:30:06.854597329 socket.cpp:489] [c10d] waitForInput: socket {socket}"
        " timed out after 1800000ms"
    )
    yield "[rank1]: Traceback (most recent call last):"
    yield '[rank1]:   File "/env/lib/axolotl/cli/train.py", line 124, in <module>'
    yield (
        "[rank1]: torch.distributed.DistStoreError: wait timeout after 1800000ms,"
        " keys: /default_pg/0//cuda//0"
    )


def half_written() -> Iterable[str]:
    yield from (f"step {step}/1000 loss {near(2, step)} lr 1e-4" for step in range(60))
    yield "Traceback (most recent call last):"
    yield '  File "/app/train.py", line 88, in <module>'
    yield '    torch.save(state, "/ckpt/60.pt")'
    yield (
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 228062784 vs"
        " 228062672"
    )


def skipping() -> Iterable[str]:
    yield f"[INFO|trainer.py:1147] {at(0)},000 >> ***** Running training *****"
    yield (
        f"[INFO|trainer.py:1166] {at(0)},000 >>   Will skip the first 1 epochs then the first"
        " 160000 batches in the first epoch."
    )
    for step in range(30):
        stamp = at(3 * 3600 + 20 * step)
        loss = near(1.4, step)
        yield f"{stamp} {{'loss': {loss}, 'learning_rate': 2.8e-05, 'epoch': 1.{step:02d}}}"


def skipping_stands_still() -> Iterable[str]:
    yield f"[INFO|trainer.py:1147] {at(0)},000 >> ***** Running training *****"
    for part in range(41):
        clock = f"{part * 108 // 3600}:{part * 108 // 60 % 60:02d}:{part * 108 % 60:02d}"
        bar = f"{part:3d}%|###   | {part * 1600}/160000 [{clock}<1:48:00, 14.81it/s]"
        yield f"Skipping the first batches: {bar}"
    yield f"[WARNING|x.py:1] {at(3 * 3600)},000 >> still here"


def deepspeech() -> Iterable[str]:
    """The step is that of an epoch, and the same after each."""
    for epoch in range(60):
        level = 4 + 20 / (1 + epoch)
        line = "Epoch {} | {} | Elapsed Time: 2:43:34 | Steps: {} | Loss: {:.6f}"
        yield line.format(epoch, "  Training", 6275, near(level, epoch))
        yield line.format(epoch, "Validation", 784, near(level - 0.4, epoch))


REPORTS = {
    "trl 6702: a step that the loss hides": Report(
        filtered_loss, "WARNING", "GO_ON", frozenset({"NonFiniteGradient"}), words=("(over)",)
    ),
    "trl 6702: a share of losses": Report(
        lambda: counted_loss(0.25), "WARNING", "GO_ON", frozenset({"NonFiniteLoss"})
    ),
    "trl 6702: none of the losses": Report(lambda: counted_loss(0.0), "HEALTHY", "GO_ON"),
    "trl 6702: a policy that is NaN under a constant loss": Report(
        silent_nan,
        "WARNING",
        "GO_ON",
        frozenset({"MetricMissing"}),
        words=("kl is NaN", "entropy is NaN"),
    ),
    "Megatron-DeepSpeed 434: the key is gone": Report(
        lambda: vanished(""),
        "CRITICAL",
        "UNKNOWN",
        frozenset({"MetricMissing"}),
        words=("the loss is missing in ",),
        never=("nothing failed",),
        ending="jsonl",
    ),
    "Megatron-DeepSpeed 434: null": Report(
        lambda: vanished('"loss": null, '),
        "CRITICAL",
        "UNKNOWN",
        frozenset({"MetricMissing"}),
        ending="jsonl",
    ),
    "ms-swift 5772: an abort after the end": Report(
        aborted_at_exit,
        "WARNING",
        "GO_ON",
        frozenset({"RunFinished"}),
        step=74,
        words=("failed after its last step", "SIGABRT"),
        never=("RESTART",),
    ),
    "architecture-objective 26: t5x": Report(
        t5x, "CRITICAL", "RESTART", frozenset({"TrainingCrashed", "TrainingStalled"}), 37, 196
    ),
    "architecture-objective 26: MaxText, at the end of its log": Report(
        maxtext, "CRITICAL", "RESTART", rank=3, step=119
    ),
    "speculators 739: two starts fail alike after a preemption": Report(
        lambda: preempted(2),
        "CRITICAL",
        "STOP",
        frozenset({"JobKilled", "TrainingCrashed"}),
        words=("MetadataIncompleteBuffer",),
        never=("nothing is wrong",),
    ),
    "speculators 739: five starts fail alike after a preemption": Report(
        lambda: preempted(5),
        "CRITICAL",
        "STOP",
        frozenset({"JobKilled", "TrainingCrashed", "RestartStorm"}),
    ),
    "R-Drop 9: an OOM that was caught": Report(
        lambda: fairseq(ooms=1, fails=False),
        "WARNING",
        "GO_ON",
        frozenset({"OutOfMemory"}),
        step=5900,
        words=("did not fit in memory",),
        never=("crashed", "allocated_memory"),
    ),
    "DSLP 13: caught OOMs, then an error of cuBLAS": Report(
        lambda: fairseq(ooms=3, fails=True),
        "CRITICAL",
        "RESTART",
        frozenset({"OutOfMemory", "GpuError", "TrainingCrashed"}),
        words=("CUBLAS_STATUS_EXECUTION_FAILED", "did not fit in memory"),
    ),
    "axolotl 2684: one rank tokenizes, another gives up": Report(
        tokenizing,
        "CRITICAL",
        "UNKNOWN",
        frozenset({"TrainingCrashed"}),
        words=("wait timeout after 1800000ms", "timeout on 1 rank"),
    ),
    "a full disk, as torch's zip writer reports it": Report(
        half_written,
        "CRITICAL",
        "STOP",
        frozenset({"DiskFull", "TrainingCrashed"}),
        step=59,
        words=("unexpected pos",),
    ),
    "transformers 11284: batches are skipped for three hours": Report(
        skipping, "HEALTHY", "GO_ON", never=("critical",)
    ),
    "transformers 11284: the bar of skipped batches stands still": Report(
        skipping_stands_still,
        "WARNING",
        "UNKNOWN",
        frozenset({"TrainingStalled"}),
    ),
    "DeepSpeech 3620: one line an epoch": Report(deepspeech, "HEALTHY", "GO_ON"),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A finished log at its end: its run, when incidents `began`, what fired, all that it says."""

    run: RunView
    began: tuple[float, ...]
    fired: frozenset[str]
    said: str


def judged(file: Path) -> Judged:
    """The log as `replay` plays it."""
    played = Replay(Settings(files=(str(file),), companions=False))
    transitions = [*played.transitions()]
    snapshot = played.snapshot()
    (run,) = snapshot.runs
    texts = [each.text for each in run.reasons] + [each.title for each in snapshot.incidents]
    texts += [each.labels.get("severity", "") for each in transitions] + [*run.statistics]
    decision = decision_of(run)
    fired = {each.alert for each in transitions if each.state == "firing"} - {"Watchdog"}
    said = "\n".join([*texts, decision.decision, *decision.reasons])
    began = tuple(each.began_at for each in snapshot.incidents)
    return Judged(run, began, frozenset(fired), said)


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_report_describes_is_said_as_it_is(tmp_path: Path, name: str) -> None:
    report, file = REPORTS[name], tmp_path / f"train.{REPORTS[name].ending}"
    file.write_text("".join(f"{line}\n" for line in report.lines()), "utf-8")
    found = judged(file)
    assert (found.fired, found.run.health) == (report.alerts, report.health)
    assert decision_of(found.run).decision == report.decision
    assert report.rank in (None, found.run.failed_rank)
    assert report.step in (None, found.run.step)
    assert all(each >= BEGIN.timestamp() for each in found.began)
    assert [word for word in report.words if word not in found.said] == []
    assert [word for word in report.never if word in found.said] == []


def counted_anew(*, starts: int, loses: bool, says: bool) -> Iterable[str]:
    """Steps 0 to 6,000, and again after a pause of four minutes, from a checkpoint or from none."""
    for start in range(starts):
        if start and says:
            yield "Resuming from checkpoint /ckpt/model_6000.pt"
        for number in range(61):
            level = 2 + 8 / (1 + number + (0 if loses else 60 * start))
            stamp = at(start * (60 * 15 + 240) + number * 15)
            yield f"{stamp} Step {100 * number:6d} | loss {near(level, number):.4f} | lr 3.0e-4"


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize(("starts", "loses"), [(2, False), (3, False), (2, True)])
def test_steps_that_count_anew_from_a_checkpoint_are_not_taken_again(
    tmp_path: Path, says: bool, starts: int, loses: bool
) -> None:
    """taiyaki 78: a loss that goes on where it was shows that the work was kept."""
    file = tmp_path / "train.log"
    lines = counted_anew(starts=starts, loses=loses, says=says)
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    found = judged(file)
    assert found.fired <= {"TrainingStalled"}
    assert (found.run.health, found.run.step) == ("HEALTHY", 6000)
    assert found.run.goodput is not None
    lost = {each.what for each in found.run.goodput.losses}
    assert ("steps taken again" in lost, "restart" in lost) == (loses, True)


@pytest.mark.parametrize(
    ("factor", "alert"), [(float("nan"), "NonFiniteLoss"), (30, "LossSpike"), (1, "")]
)
def test_an_anomaly_of_one_rank_counts_and_names_it(
    tmp_path: Path, factor: float, alert: str
) -> None:
    """WeatherGenerator 2724: four files of one run, and only that of rank 2 has the bad loss."""
    for rank in range(4):
        lines = [f"{at(0)} [rank {rank}/4] start training, world_size=4"]
        for step in range(1, 161):
            loss = near(2.5, step + rank) * (factor if (rank, step) == (2, 60) else 1)
            lines.append(
                f"{at(2 * step)} [rank {rank}/4] step {step}/400 loss {loss:.4f} lr 1.0e-4"
            )
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n", "utf-8")
    files = tuple(str(tmp_path / f"rank_{rank}.log") for rank in range(4))
    played = Replay(Settings(files=files))
    fired = [each for each in played.transitions() if each.state == "firing"]
    ranks = {(each.alert, each.labels.get("rank")) for each in fired} - {("Watchdog", None)}
    assert ranks == ({(alert, "2")} if alert else set())
    assert [run.step for run in played.snapshot().runs] == [160]


@pytest.mark.parametrize(
    "report",
    [
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "               NVRM: fallen off the bus and is not responding to commands.",
        ),
        ("NVRM: Xid (PCI:0000:b3:00): 79, pid=1234, GPU has fallen off the bus.",),
    ],
    ids=["without an Xid", "Xid 79"],
)
def test_a_gpu_that_the_kernel_lost_costs_its_node(tmp_path: Path, report: tuple[str, ...]) -> None:
    """gpud 1209: newer drivers write three lines."""
    file = tmp_path / "kernel.log"
    prefix = at(0, "%b %d %H:%M:%S gpu-node-1 kernel: ")
    file.write_text("".join(f"{prefix}{line}\n" for line in report), "utf-8")
    found = judged(file)
    assert (found.fired, found.run.health) == ({"GpuError"}, "CRITICAL")
    assert (decision_of(found.run).decision, decision_of(found.run).node) == (
        "RESTART_WITHOUT",
        "gpu-node-1",
    )
