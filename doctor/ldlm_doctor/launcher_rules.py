"""Judges what launchers are told: torchrun's options, and the configuration of Accelerate."""

from __future__ import annotations

from collections.abc import Iterator

from ldlm_doctor.finding import Check, Finding
from ldlm_doctor.options import Group

RENDEZVOUS_LOCAL = Check(
    "rendezvous-on-localhost",
    "error",
    "Several nodes, and each looks for the others at itself",
    "localhost is another machine on every node: each waits for the others until its timeout, or "
    "they train on their own.",
    "https://docs.pytorch.org/docs/stable/elastic/run.html (--rdzv-endpoint, --master-addr)",
    "",
    "The name of one node that all others reach, such as the first of `scontrol show hostnames`.",
)
ACCELERATE_DEBUG = Check(
    "accelerate-debug",
    "info",
    "Accelerate's debug mode is on",
    "Before each collective the shapes of all processes are gathered and compared: one more "
    "collective for each, for a diagnosis.",
    "https://huggingface.co/docs/accelerate/usage_guides/debug",
    "",
    "debug: false",
)
CHECKS = (RENDEZVOUS_LOCAL, ACCELERATE_DEBUG)

_NODES = ("nnodes", "num_machines", "num_nodes")
_ADDRESSES = ("master_addr", "main_process_ip", "rdzv_endpoint")
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})


def judge(group: Group) -> Iterator[Finding]:
    """All findings in options that are given together."""
    nodes = max((option.number or 1 for option in group.of(*_NODES)), default=1)
    for option in group.of(*_ADDRESSES) if nodes > 1 else ():
        host = (option.value or "").rsplit(":", 1)[0] if option.value != "[::1]" else "[::1]"
        if host in _HERE:
            yield option.finding(RENDEZVOUS_LOCAL, f"{nodes} nodes")
    names = {option.name for option in group.options}
    for option in group.of("debug"):
        if option.truth and {"distributed_type", "num_processes"} <= names:
            yield option.finding(ACCELERATE_DEBUG, "", option.with_value("false"))
