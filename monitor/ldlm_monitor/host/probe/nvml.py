"""The child process that asks NVIDIA's driver: a line of JSON for each line of its input.

It imports little, so that it starts fast and stays small; `gpu` starts and reads it.
"""

import importlib
import json
import sys
from typing import TypeAlias

from ldlm_callback.device import sample

Device: TypeAlias = tuple[str, dict[str, float], dict[int, int | None]]
"""Name, values and compute processes of a GPU; bytes by pid, None if the driver does not say."""


def devices() -> list[Device] | str:
    """The GPUs by number, or why there are none."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed: pip install 'ldlm-monitor[gpu]'"
    try:
        nvml.nvmlInit()
        found: list[Device] = []
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            computing = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            used = {each.pid: each.usedGpuMemory for each in computing}
            found.append((nvml.nvmlDeviceGetName(handle), sample(nvml, handle), used))
    except nvml.NVMLError as problem:
        return f"the driver of the GPUs: {problem}"
    return found or "this host has no GPU of NVIDIA"


if __name__ == "__main__":
    for _ in sys.stdin:
        print(json.dumps(devices()), flush=True)
