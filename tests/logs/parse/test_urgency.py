"""What is read before other lines: failures and values that are not finite, of any format."""

import pytest

from ldlm_monitor.logs.parse.urgency import Urgency


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Invalid text_loss detected: nan",
        '{"step": 7, "loss": NaN}',
        '{"step": 7, "loss": "Infinity"}',
        "\rTraining:  40%|####  | 40/100 [00:04<00:06, 9.9it/s, Loss=nan]\r",
        "iteration 12 | lm loss: -inf |",
        "kernel: NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275",
        "Traceback (most recent call last):",
    ],
)
def test_a_failure_is_urgent(line: str) -> None:
    assert Urgency()(f"epoch 1\n{line}\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        "node01:4711:4753 [0] NCCL INFO Connected all trees",
        "\rTraining:  40%|####  | 40/100 [00:04<00:06, 9.9it/s, Loss=2.1]\r",
        '{"step": 7, "loss": 2.5, "run": "nanoGPT", "info": "financial"}',
        "Saved a checkpoint to /data/inference/nano",
    ],
)
def test_a_healthy_line_is_not(line: str) -> None:
    assert not Urgency()(f"epoch 1\n{line}\n".encode())
