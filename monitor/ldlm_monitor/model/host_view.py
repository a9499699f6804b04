"""The host of a run for its readers: its processes, memory, the disk of its checkpoints, GPUs."""

from pydantic import Field

from ldlm_monitor.model.incident_view import View


class ProcessView(View):
    """A rank's main process (`rank` None: of a run without ranks), with its descendants' memory.

    `state` is the kernel's letter (proc(5)); `cores`: CPU seconds over seconds since its start.
    """

    rank: int | None
    pid: int
    state: str
    cores: float
    resident_bytes: int


class DiskView(View):
    """The disk of the folder to which checkpoints go.

    `full_at` (Unix seconds): when nothing will be left at the pace of the last checkpoints; None if
    that is not known yet, or if free space does not fall with each of them.
    """

    folder: str
    free_bytes: int
    total_bytes: int
    full_at: float | None


class GpuView(View):
    """A GPU: its number (`gpu`) on its host, or the `rank` whose callback reports it.

    `values` have the names of the callback's rows (`gpu_power_watts`); unknown ones are absent.
    """

    gpu: str
    rank: int | None = None
    name: str = ""
    values: dict[str, float]


class HostView(View):
    """What was seen at `at` (Unix seconds) of a run on the monitor's own host.

    `without_gpus`: why there are no GPUs, or "".
    """

    at: float
    host: str
    processes: tuple[ProcessView, ...] = Field(description="by rank, bounded")
    memory_total_bytes: int
    memory_available_bytes: int
    disk: DiskView | None
    gpus: tuple[GpuView, ...] = ()
    without_gpus: str = ""
