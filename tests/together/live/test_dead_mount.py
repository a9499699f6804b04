"""A real file system whose server stops answering: the other files go on, its own join later.

The server is a process of this test that answers FUSE's requests; SIGSTOP is its death.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

HERE, THERE = "train_logs/train_20260129_101500_node0.log", "remote/train_20260130_120000_node0.log"
RUN, FAR_RUN = "train_20260129_101500", "train_20260130_120000"
NAN = "WARNING: Invalid text_loss detected: nan\n"
BOTH = ("train_logs/*.log", "mounted/*.log")


class Mount:
    """`remote/` seen as `mounted/`, through a server that can be stopped."""

    def __init__(self, folder: Path) -> None:
        self.point = folder / "mounted"
        for each in (folder / "remote", self.point):
            each.mkdir()
        script = Path(__file__).with_name("fuse_server.py")
        self._server = subprocess.Popen(
            [sys.executable, str(script), str(folder / "remote"), str(self.point)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        self.said = self._server.stdout.readline().strip()

    def stop(self) -> None:
        """No answer from now on; returns when that is sure."""
        self._server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._server.pid, os.WSTOPPED)

    def revive(self) -> None:
        self._server.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Whoever waits for the server gets an error when it is gone."""
        self._server.kill()
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()
        if self.said == "mounted":
            subprocess.run(["umount", "--lazy", str(self.point)], check=True)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse is not to be had")
    mount = Mount(tmp_path)
    try:
        if mount.said != "mounted":
            pytest.skip(f"mounting is not permitted here ({mount.said})")
        yield mount
    finally:
        mount.close()


def test_a_server_that_is_dead_at_the_start_holds_up_no_other_file_and_its_files_join_later(
    mount, start, slack, append, bars
):
    append(HERE, bars(0, 40))
    append(THERE, bars(0, 40) + NAN)
    mount.stop()
    daemon = start(*BOTH, slack=slack).ready()
    append(HERE, NAN)
    assert RUN in slack.next()
    daemon.wait_for_message("no answer from", "mounted (fuse) for", "other files are still read")
    assert f'ldlm_train_step{{run="{RUN}"}} 39\n' in daemon.get("/metrics")
    mount.revive()
    assert FAR_RUN in slack.next()
    daemon.wait_for_message("answers again")
    append(THERE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert "OutOfMemory firing" in slack.next()
    assert daemon.stop() == 0
    assert daemon.log.read_text().count("no answer from") == 1


def test_a_server_that_dies_later_holds_up_no_other_file_and_what_it_got_is_read_when_it_answers(
    mount, start, slack, append, bars
):
    append(HERE, bars(0, 40))
    append(THERE, bars(0, 40))
    daemon = start(*BOTH, slack=slack).ready()
    daemon.wait_for_metric(f'ldlm_train_step{{run="{FAR_RUN}"}} 39')
    mount.stop()
    append(THERE, NAN)
    append(HERE, NAN)
    message = slack.next()
    assert RUN in message
    daemon.wait_for_message("no answer from", "mounted (fuse) for", "other files are still read")
    append("train_logs/other.log", bars(0, 5) + NAN)
    assert "other" in slack.next()
    mount.revive()
    assert FAR_RUN in slack.next()
    daemon.wait_for_message("answers again")
    assert daemon.log.read_text().count("no answer from") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_although_a_server_is_dead(mount, start, append, bars, number):
    append(HERE, bars(0, 40))
    append(THERE, bars(0, 40))
    daemon = start(*BOTH).ready()
    mount.stop()
    append(HERE, NAN)
    daemon.until("FIRING", RUN)
    assert daemon.stop(number) == (130 if number == signal.SIGINT else 0)


def test_how_far_a_silent_servers_files_were_judged_survives_restarts(
    mount, start, slack, append, bars
):
    append(HERE, bars(0, 40))
    append(THERE, bars(0, 40))
    start(*BOTH, slack=slack).ready().stop()
    mount.stop()
    start(*BOTH, slack=slack).ready().stop()
    mount.revive()
    append(THERE, NAN + bars(40, 50))
    daemon = start(*BOTH, slack=slack).ready()
    assert "NonFiniteLoss firing" in slack.next()
    daemon.wait_for_metric('ldlm_train_step{run="train_20260130_120000"} 49')
