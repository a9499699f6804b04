"""Checksums of parameters and optimizer state, by which replicas are compared."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from ldlm_callback.checksums import Checked, take  # noqa: E402
from ldlm_callback.device import DeviceCopies  # noqa: E402
from ldlm_callback.rows import Rows  # noqa: E402
from ldlm_callback.steps import Steps  # noqa: E402


class Far(torch.Tensor):
    """A tensor that is not in host memory."""

    is_cpu = False


def test_from_a_device_the_same_checksum_comes_by_a_copy_and_nothing_waits() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    called = set()

    class Listen(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            called.add(str(operator).removeprefix("aten.").partition(".")[0])
            return operator(*args, **(kwargs or {}))

    near = [torch.randn(5, 3), torch.randn(4).to(torch.bfloat16), torch.ones(2, dtype=torch.cfloat)]
    checksums = []
    for tensors in (near, [each.as_subclass(Far) for each in near]):
        found: list = []
        steps = Steps(found.append, {}, every=7)
        steps._copies[torch.device("cpu")] = DeviceCopies(torch.device("cpu"))
        steps.watch({"all": tensors}, 0, None, 2)
        with Listen():
            steps.step(2, {"loss": 1.0}, None, None, None)
            steps.step(3, {"loss": 1.0}, None, None, None)
        rows = [row for entry in found for row in Rows(0, 7, lambda: None).make(entry)]
        checksums += [row["fields"]["checksums"] for row in rows]
    assert checksums[0] == checksums[1]
    assert len(checksums[0]["parameters"]) == 12
    assert not called & {"item", "_local_scalar_dense", "nonzero", "equal", "is_nonzero"}


def test_tensors_without_a_checksum_end_the_checks_and_not_the_steps() -> None:
    found: list = []
    steps = Steps(found.append, {})
    steps.watch({"all": [torch.ones(2).to_sparse()]}, 0, None, 1)
    for step in (1, 2):
        steps.step(step, {"loss": 1.0}, None, None, None)
    assert [row["message"][:26] for row in found if isinstance(row, dict)] == [
        "replicas are not checked: "
    ]
    assert len(found) == 3


def test_parameters_on_two_devices_have_a_checksum_each() -> None:
    """A model whose parts lie on several devices: halves of one device stay together."""
    checked = Checked([torch.ones(3), torch.ones(3, device="meta")], None, 1)
    names = list(checked.sums())
    halves = dict(zip(names, (1.0, 2.0, 3.0, 4.0), strict=True))
    assert [*take({"loss": 2.0, **halves}).values()] == ["000001000002", "000003000004"]
