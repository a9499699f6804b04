"""The front of a run, which waits in place of the command, passes each signal on."""

import json
import socket
import subprocess
import sys

import pytest

FRONT = """
import os, signal, sys, threading, time
from ldlm_monitor.host.supervise.launch import Front
from ldlm_monitor.host.supervise.streams import Link

front = Front(Link(int(sys.argv[1])))

def interrupt():
    time.sleep(0.5)  # the main thread waits by then
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    time.sleep(60)

threading.Thread(target=interrupt, daemon=True).start()
os._exit(front.wait("train"))
"""


@pytest.mark.live
def test_a_signal_that_does_not_wake_the_wait_itself_is_passed_on_at_once() -> None:
    """As one just before the wait: Python handles it in the main thread, which the kernel leaves
    asleep, since another thread took the signal.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = str(theirs.fileno())
        command = [sys.executable, "-c", FRONT, number]
        with subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
            theirs.close()
            ours.settimeout(20)
            try:
                assert json.loads(ours.recv(4096)) == {"signal": 2}
                ours.sendall(b'{"over": 7}\n')
                assert process.wait(20) == 7
            finally:
                process.kill()
