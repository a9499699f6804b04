"""Whether every incident reaches the receiver when the daemon is killed again and again.

A local webhook answers 200, 429 with Retry-After, 500, half an answer, or nothing. While a thousand
runs report a NaN, one after the other, the daemon is killed with SIGKILL at random moments and
started anew.
"""

import random
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import side_by_side as bench

INCIDENTS = 1000
ACCEPTED, LIMITED, BROKEN, HALF, SILENT = "200", "429", "500", "half", "nothing"
SHARES = {ACCEPTED: 92, LIMITED: 2, BROKEN: 2, HALF: 2, SILENT: 2}
RETRY_AFTER = "1"
AFTER_DELIVERY_SECONDS = 0.05
"""Within this time after a request the daemon commits what the receiver answered."""
HEARD_EVERY = 5
"""Of the requests without an answer, one in so many is kept open until the client gives up."""


@dataclass(slots=True)
class Moody:
    """How the receiver answers: drawn by a seeded generator."""

    rng: random.Random
    answers: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: bench.SlackRequest) -> bool:
        with self._lock:
            [mood] = self.rng.choices(list(SHARES), list(SHARES.values()))
            self.answers[mood] += 1
            silent = self.answers[SILENT]
        if mood == ACCEPTED:
            request.say(200, b"ok")
        elif mood == LIMITED:
            request.say(429, b"rate_limited", Retry_After=RETRY_AFTER)
        elif mood == BROKEN:
            request.say(500, b"server_error")
        elif mood == HALF:
            request.wfile.write(b"HTTP/1.1 20")
        elif silent % HEARD_EVERY == 0:
            request.rfile.read(1)  # ends when the client hangs up
        request.close_connection = True
        return mood == ACCEPTED


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the incidents; `doubles` are acceptances beyond the first of each."""

    delivered: int
    doubles: int
    kills: int
    answers: Counter[str]
    seconds: float


def write_nans(logs: list[Path], pace: float, stopping: threading.Event) -> None:
    """One NaN after the other, `pace` seconds apart."""
    for log in logs:
        bench.append(log, bench.NAN_LINE + "\n")
        if stopping.wait(pace):
            return


def measure(args: Namespace, incidents: int) -> Outcome:
    rng = random.Random(args.seed)
    runs = bench.run_names(incidents)
    moody = Moody(random.Random(args.seed + 1))
    with tempfile.TemporaryDirectory(prefix="kill-delivery-") as name, ExitStack() as stack:
        folder = Path(name)
        logs = [folder / f"{run}_node0.log" for run in runs]
        for run, log in zip(runs, logs, strict=True):
            bench.append(log, bench.banner(run) + bench.bars())
        total = sum(log.stat().st_size for log in logs)
        slack = stack.enter_context(bench.listening(bench.Slack(runs, moody)))
        with bench.running_daemon(args.command, folder, slack.url) as daemon:
            daemon.wait_for_bytes(total, "reading the healthy bars")
        stopping = threading.Event()
        pace = args.seconds / incidents
        writer = threading.Thread(target=write_nans, args=(logs, pace, stopping), daemon=True)
        stack.callback(writer.join)
        stack.callback(stopping.set)
        started = time.monotonic()
        writer.start()
        kills = _kill_again_and_again(args, folder, slack, rng)
        with bench.running_daemon(args.command, folder, slack.url) as daemon:
            daemon.wait_for_bytes(total, "reading all again")
            _wait_while_it_goes_on(slack, incidents, args.patience)
        seconds = time.monotonic() - started
    delivered = len(slack.accepted)
    doubles = sum(max(count - 1, 0) for count in slack.accepted.values())
    return Outcome(delivered, doubles, kills, moody.answers, seconds)


def _kill_again_and_again(
    args: Namespace, folder: Path, slack: bench.Slack, rng: random.Random
) -> int:
    """Start and kill; the number of kills. Ends early once all are delivered."""
    for kill in range(args.kills):
        with bench.running_daemon(args.command, folder, slack.url) as daemon:
            if kill % 2:
                _wait_for_some(args, slack, rng)
                moment = rng.uniform(0, AFTER_DELIVERY_SECONDS)
            else:
                moment = rng.uniform(*args.alive)
            if slack.wait_for(len(slack.runs), moment):
                return kill
            if daemon.ended_within(0):
                raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
            daemon.process.kill()
            daemon.process.wait()
    return int(args.kills)


def _wait_for_some(args: Namespace, slack: bench.Slack, rng: random.Random) -> None:
    """Until some more incidents were delivered; how many is drawn so that kills meet all of them.

    A deadline keeps a daemon that delivers nothing from ending the trial.
    """
    share = 4 * len(slack.runs) // args.kills
    wanted = len(slack.arrivals) + rng.randrange(1, max(share, 2))
    slack.wait_for(min(wanted, len(slack.runs)), args.patience)


def _wait_while_it_goes_on(slack: bench.Slack, incidents: int, patience: float) -> None:
    """Until all are delivered, or no message of any kind came for `patience` seconds.

    Other alerts of the same runs (their logs are silent for long) stand in the same queue.
    """
    known = -1
    while len(slack.arrivals) < incidents and slack.messages > known:
        known = slack.messages
        slack.wait_for(incidents, patience)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--incidents", type=int, default=INCIDENTS, help="runs with a NaN")
    parser.add_argument("--kills", type=int, default=20, help="how often it is killed")
    parser.add_argument(
        "--alive", type=float, nargs=2, default=(0.5, 6.0), help="seconds between two kills"
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="over which NaNs are written")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds until one is lost")
    parser.add_argument("--seed", type=int, default=1)


def rows(args: Namespace) -> list[bench.Row]:
    incidents = args.incidents // 10 if args.quick else args.incidents
    if args.quick:
        args = Namespace(
            **{**vars(args), "kills": max(args.kills // 4, 1), "seconds": args.seconds / 4}
        )
    outcome = measure(args, incidents)
    answers = ", ".join(f"{count} x {mood}" for mood, count in outcome.answers.items())
    ours = (
        f"{outcome.delivered} delivered, {outcome.doubles} doubles, {outcome.kills} kills, "
        f"{outcome.seconds:.0f} s; answered {answers}"
    )
    return [
        bench.Row(
            f"{incidents} incidents through kill -9",
            "all delivered, at most one double a kill",
            ours,
            met=outcome.delivered == incidents and outcome.doubles <= outcome.kills,
        )
    ]


if __name__ == "__main__":
    flags = bench.arguments("Delivery through kill -9.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
