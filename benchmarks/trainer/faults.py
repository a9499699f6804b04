"""Every fault on purpose, and what the monitor says: python benchmarks/trainer/faults.py

For each fault of the table: two ranks by the launch script, the daemon as a user starts it, and
a Slack webhook in this process. The fault strikes in step 120 (checkpoints: the first one
after it). Seconds are counted from the end of the step before it, so they contain what the
fault itself takes to be seen, as a hang's stall limit. A Markdown table for docs/trainer.md.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import side_by_side as bench  # noqa: E402

STEP = 120
FAULTS = {
    "nan_loss": f"nan_loss@{STEP}:rank=1",
    "inf_loss": f"inf_loss@{STEP}:rank=1",
    "loss_spike": f"loss_spike@{STEP}:x=20:for=20",
    "grad_explosion": f"grad_explosion@{STEP}:x=1e6:for=2000",
    "hang:kind=sleep": f"hang@{STEP}:rank=1:kind=sleep",
    "hang:kind=spin": f"hang@{STEP}:rank=1:kind=spin",
    "hang:kind=gil": f"hang@{STEP}:rank=1:kind=gil",
    "hang:kind=collective": f"hang@{STEP}:rank=1:kind=collective",
    "loader_stall": f"loader_stall@{STEP}:rank=1:seconds=600",
    "slow": f"slow@{STEP}:rank=1:seconds=0.5:for=100000",
    "kill": f"kill@{STEP}:rank=1",
    "segv": f"segv@{STEP}:rank=1",
    "exit": f"exit@{STEP}:rank=1",
    "raise": f"raise@{STEP}:rank=1",
    "oom": f"oom@{STEP}:rank=1",
    "disk_full": f"disk_full@{STEP}:for=100000",
    "sigterm": f"sigterm@{STEP}:rank=1",
}
GROUPED = re.compile(r"\d+ alerts \(")
RUN = re.compile(r"train_\d{8}_\d{6}")
PATIENCE = 420.0
"""Seconds for a message: a slow rank is reported after five minutes of slowness."""


class Messages(bench.Slack):
    """Notes when each message came (Unix seconds), and its first line."""

    def __init__(self) -> None:
        super().__init__([])
        self.came: list[tuple[float, str]] = []

    def take(self, message: str, arrived: float) -> None:
        self.came.append((time.time() - (time.perf_counter() - arrived), first_line(message)))


def first_line(message: str) -> str:
    """The first line of a message as a person's phone shows it; of several alerts, their lines."""
    body = json.loads(message)
    text = str(body["text"])
    if GROUPED.search(text):
        text = ", ".join(str(body["blocks"][1]["text"]["text"]).splitlines())
    text = text.replace(f"{ROOT}/", "").replace(f"({socket.gethostname()})", "(HOST)")
    return RUN.sub("RUN", text.strip().partition("\n")[0]).replace("|", "\\|")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one fault; `seconds` None: no message, which is right for `sigterm`."""

    line: str
    seconds: float | None


def try_fault(setting: str, data: Path, patience: float) -> Outcome:
    """Train with the fault until a message comes, or the training has ended without one."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        logs = folder / "train_logs"
        logs.mkdir()
        messages = Messages()
        with bench.listening(messages), bench.running_daemon("ldlm-monitor", logs, messages.url):
            training = launch(setting, data, folder)
            try:
                return wait_for_message(training, messages, folder, patience)
            finally:
                stop(training)


def launch(setting: str, data: Path, folder: Path) -> "subprocess.Popen[bytes]":
    saves = STEP + 1 if "disk_full" in setting else 0  # or a small disk has an alert of its own
    given = {
        "NPROC_PER_NODE": "2", "DATA_DIR": str(data), "DATA_WORKERS": "0", "L2T_STEPS": "100000",
        "L2T_EVAL_FREQ": "0", "L2T_SAVE_FREQ": str(saves), "L2T_LOG_FREQ": "10",
        "WARMUP_STEPS": "20", "LDLM_FAULTS": setting, "PYTHON": sys.executable,
    }  # fmt: skip
    return subprocess.Popen(
        ["bash", str(ROOT / "trainer/train_l2t.sh"), "model.width=32"],
        cwd=folder,
        env={**os.environ, **given},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_message(
    training: "subprocess.Popen[bytes]", messages: Messages, folder: Path, patience: float
) -> Outcome:
    until = None
    while True:
        struck = struck_at(folder / "saved/l2t/training_log.jsonl")
        after = [(at, line) for at, line in messages.came if struck is not None and at >= struck]
        if after and struck is not None:
            return Outcome(after[0][1], after[0][0] - struck)
        if training.poll() is not None and until is None:
            until = time.time() + 20  # for what the daemon makes of the end
        if until is not None and time.time() > until:
            return Outcome("nothing", None)
        if struck is not None and time.time() > struck + patience:
            return Outcome(f"nothing within {patience:.0f} s", None)
        time.sleep(0.05)


def struck_at(rows: Path) -> float | None:
    """When the step before the fault was done."""
    with suppress(OSError, ValueError):
        for line in rows.read_text().splitlines():
            row = json.loads(line)
            if row["step"] == STEP - 1:
                return float(row["time"])
    return None


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the launch, torchrun and its ranks, each of which has a session of its own."""
    for pid in [*descendants(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """A process's children, theirs, and so on, the youngest first."""
    found: list[int] = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [*descendants(int(child)), int(child)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(FAULTS), choices=FAULTS, metavar="FAULT")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for a message")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-data-") as name:
        data, text = Path(name), Path(name) / "topics.txt"
        text.write_text("\n".join(" ".join(topic.split()) for topic in topics.values()))
        command = [sys.executable, "-m", "ldlm_trainer", "prepare", name, "--text", str(text)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print("| fault | first line of Slack | seconds |\n| --- | --- | --- |", flush=True)
        for fault in given.only:
            found = try_fault(FAULTS[fault], data, given.patience)
            seconds = "" if found.seconds is None else f"{found.seconds:.1f}"
            print(f"| `{fault}` | {found.line} | {seconds} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
