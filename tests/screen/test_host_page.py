"""The page of a run's host: what is known, and how to get what is not."""

import pytest

from ldlm_monitor.base.snapshot import DiskView, GpuView, HostView, ProcessView, RunView, Snapshot
from ldlm_monitor.screen.draw import ASCII, UNICODE, width_of
from ldlm_monitor.screen.host_page import page_lines
from tests.screen.screens import NOW, Screen, Shown, on_screen, plain_text

GIB = 2**30
GPU = GpuView(
    gpu="1",
    name="NVIDIA H100 80GB",
    values={
        "gpu_utilization_ratio": 0.87,
        "gpu_memory_used_bytes": 60 * GIB,
        "gpu_memory_total_bytes": 80 * GIB,
        "gpu_temperature_celsius": 71.0,
        "gpu_ecc_errors_total": 3,
        "gpu_throttled_thermal": 1,
        "gpu_throttled_power": 0,
    },
)
HOST = HostView(
    at=NOW - 12,
    host="node17",
    processes=(
        ProcessView(rank=0, pid=4711, state="R", cores=1.02, resident_bytes=5 * GIB),
        ProcessView(rank=1, pid=4712, state="T", cores=0.5, resident_bytes=4 * GIB),
    ),
    memory_total_bytes=512 * GIB,
    memory_available_bytes=128 * GIB,
    disk=DiskView(
        folder="/ckpt/run", free_bytes=100 * GIB, total_bytes=1000 * GIB, full_at=NOW + 5400
    ),
    gpus=(GPU,),
)


def a_run(snapshot: Snapshot, **changes: object) -> RunView:
    return snapshot.runs[0].model_copy(update={"ended_at": None, **changes})


def page(run: RunView, width: int = 80) -> str:
    return " ".join(plain_text(page_lines(run, NOW, width, UNICODE)).split())


def test_the_page_shows_gpus_processes_memory_and_when_the_disk_is_full(shown: Shown) -> None:
    lines = plain_text(page_lines(a_run(shown.snapshot, host=HOST), NOW, 80, UNICODE)).splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert rows[1] == "1 87 % 60.0 GiB of 80.0 GiB 71 C - 3 thermal NVIDIA H100 80GB"
    assert "rank 0 4711 1.02 5.0 GiB runs" in rows
    assert "rank 1 4712 0.50 4.0 GiB stopped" in rows
    assert any("384.0 GiB of 512.0 GiB used" in row for row in rows)
    assert rows[-3].endswith("900.0 GiB of 1000.0 GiB used")
    assert rows[-2:] == ["/ckpt/run", "full in 1h 30m at the pace of the last checkpoints"]


def test_what_the_callback_reports_of_a_gpu_comes_before_what_was_read_here(shown: Shown) -> None:
    of_rank = GpuView(gpu="9", rank=9, values={"gpu_power_watts": 640.0})
    text = page(a_run(shown.snapshot, host=HOST, gpus=(of_rank,)))
    assert "rank 9 - - - 640 W -" in text
    assert "H100" not in text


def test_what_is_not_known_is_named_and_how_to_get_it(shown: Shown) -> None:
    unknown = page(a_run(shown.snapshot))
    assert "pip install 'ldlm-monitor[gpu]'; docs/callback.md" in unknown
    assert "ldlm-monitor attach URL" in unknown
    over = page(shown.snapshot.runs[0])
    assert "The run has ended" in over
    disk = DiskView(folder="/ckpt", free_bytes=GIB, total_bytes=GIB, full_at=None)
    without = {"gpus": (), "without_gpus": "this host has no GPU of NVIDIA", "disk": disk}
    some = page(a_run(shown.snapshot, host=HOST.model_copy(update=without)))
    assert "GPUs this host has no GPU of NVIDIA" in some
    assert "it takes four checkpoints whose path the log names" in some


@pytest.mark.parametrize("width", [40, 80, 200])
def test_texts_are_wrapped_not_cut(shown: Shown, width: int) -> None:
    lines = page_lines(a_run(shown.snapshot), NOW, width, ASCII)
    assert all(width_of(line) <= width for line in lines)
    assert plain_text(lines).isascii()


def test_the_page_is_behind_a_key_and_the_same_through_the_api(shown: Shown) -> None:
    runs = (a_run(shown.snapshot, host=HOST), *shown.snapshot.runs[1:])
    document = shown.snapshot.model_copy(update={"runs": runs}).model_dump_json()
    shown.snapshot = Snapshot.model_validate_json(document[:-1] + ',"points":[]}')

    async def steps(screen: Screen) -> None:
        screen.app.context.run = runs[0].name
        await screen.press("6")
        text = await screen.until("node17", "seen 12s ago")
        assert "full in 1h 30m" in text
        assert "4711" in text

    on_screen(shown.source, steps)


def test_a_bar_is_as_full_as_what_it_shows(shown: Shown) -> None:
    lines = plain_text(page_lines(a_run(shown.snapshot, host=HOST), NOW, 80, UNICODE)).splitlines()
    bars = {
        line.split()[0]: line.count("█") + line.count("░") * 1j for line in lines if "░" in line
    }
    assert bars == {"Memory": 15 + 5j, "Disk": 18 + 2j}
    (process,) = (line for line in lines if "4712" in line)
    assert process.split() == ["rank", "1", "4712", "0.50", "4.0", "GiB", "stopped"]
    late = HOST.model_copy(update={"disk": HOST.disk.model_copy(update={"full_at": NOW - 5})})  # type: ignore[union-attr]
    assert "full in 0s at the pace" in page(a_run(shown.snapshot, host=late))
