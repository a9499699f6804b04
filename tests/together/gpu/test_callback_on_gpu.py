"""What only a GPU can show of the callback: that no call waits for it, also in a graph."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from ldlm_callback import HealthCallback  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU is here: just gpu runs this where one is"
)


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Callable[[HealthCallback, int], None]]:
    """Takes so many steps of a small model, each of which fails where it waits for the device."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    data = torch.randn(8, 64, device="cuda")

    def train(callback: HealthCallback, steps: int) -> None:
        callback.watch(model, 1, optimizer=optimizer, check_replicas_every=1)
        for step in range(steps):
            if step == 3:  # memory is pinned and kernels are loaded
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error")
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            callback.on_step(step, loss=loss, batch_ids=[step])
            optimizer.zero_grad()

    yield train
    torch.cuda.set_sync_debug_mode("default")


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "health_rank0.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_steps_checks_and_windows_wait_for_nothing_and_all_values_arrive(
    trained: Callable[[HealthCallback, int], None], tmp_path: Path
) -> None:
    callback = HealthCallback(out=tmp_path, gpu=False, sigterm=False)
    trained(callback, 50)
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    callback.close()
    written = rows(tmp_path)
    steps = [row for row in written if row["type"] == "step"]
    assert [row["step"] for row in steps] == list(range(50))
    assert all(row["loss"] > 0 and row["grad_nonfinite_0"] == 0 for row in steps)
    assert sum(row.get("kind") == "replica_checksum" for row in written) == 50
    assert written[-1].keys().isdisjoint({"values_not_read", "errors", "dropped"})


def test_a_graph_is_captured_with_the_callback_in_it(tmp_path: Path) -> None:
    callback = HealthCallback(out=tmp_path, gpu=False, sigterm=False)
    value = torch.zeros((), device="cuda")
    callback.on_step(0, loss=value)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value += 1
        callback.on_step(1, loss=value)
    for step in (2, 3):
        graph.replay()
        callback.on_step(step, loss=value)
    torch.cuda.synchronize()
    callback.close()
    losses = {row["step"]: row.get("loss") for row in rows(tmp_path) if row["type"] == "step"}
    assert losses == {0: 0.0, 1: None, 2: 1.0, 3: 2.0}


def test_the_driver_and_the_allocator_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldlm_callback.device.SAMPLE_SECONDS", 0.1)
    kept = torch.zeros(1 << 20, device="cuda")
    callback = HealthCallback(out=tmp_path, sigterm=False)
    time.sleep(3)
    callback.on_step(1, loss=1.0)
    callback.close()
    (row,) = [row for row in rows(tmp_path) if row["type"] == "step"]
    assert row["memory_reserved_bytes"] >= row["memory_allocated_bytes"] >= kept.nbytes
    assert row["gpu_memory_total_bytes"] > row["gpu_memory_used_bytes"] > 0
    assert 0 <= row["gpu_utilization_ratio"] <= 1
