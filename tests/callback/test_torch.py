"""Tensors: read where that waits for nothing, else copied behind the training and read later."""

import math
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from ldlm_callback.device import DeviceCopies  # noqa: E402
from ldlm_callback.rows import Rows  # noqa: E402
from ldlm_callback.steps import Steps  # noqa: E402


def test_tensors_of_any_kind_with_one_element_are_values(health, reported) -> None:
    callback = health()
    loss = torch.tensor([[2.0]], requires_grad=True) * 2
    callback.on_step(
        torch.tensor(7),
        loss=loss,
        grad_norm=torch.nn.Parameter(torch.tensor(0.5)),
        half=torch.tensor(1.5, dtype=torch.bfloat16),
        count=torch.tensor(3),
        flag=torch.tensor(True),
        many=torch.zeros(2),
        sparse=torch.zeros(1).to_sparse(),
        meta=torch.zeros((), device="meta"),
    )
    callback.close()
    (row,) = reported("step")
    assert row["step"] == 7
    kept = {name: row[name] for name in ("loss", "grad_norm", "half", "count", "flag")}
    assert kept == {"loss": 4.0, "grad_norm": 0.5, "half": 1.5, "count": 3.0, "flag": 1.0}
    assert not {"many", "sparse", "meta"} & set(row)


def test_a_value_is_that_of_its_step_whatever_becomes_of_the_tensor(health, reported) -> None:
    callback = health()
    running = torch.zeros(())
    for step in range(5):
        running += 1
        callback.on_step(step, loss=running)
    callback.close()
    assert [row["loss"] for row in reported("step")] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_sharded_value_is_left_out_and_a_replicated_one_taken(train) -> None:
    """To put shards together is a collective, in which other ranks would not be."""
    training = train(
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        mesh = init_device_mesh("cpu", (1,))
        whole = DTensor.from_local(torch.tensor(2.0), mesh, [Replicate()])
        part = DTensor.from_local(torch.tensor([2.0]), mesh, [Shard(0)])
        callback = HealthCallback(out=sys.argv[1])
        callback.on_step(1, loss=whole, grad_norm=part)
        callback.close()
        dist.destroy_process_group()
        """
    )
    code, errors = training.end()
    assert code == 0, errors
    header, step, last = training.rows()
    assert header["world_size"] == 1
    assert step["loss"] == 2.0
    assert "grad_norm" not in step
    assert last["values_not_read"] == 1


def test_parameter_groups_are_measured_when_asked_and_after_a_nan(health, reported) -> None:
    model = torch.nn.Sequential()
    model.text, model.latent = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    callback = health()
    callback.watch(model, every=10)
    for step in range(1, 13):
        for parameter in model.text.parameters():
            parameter.grad = torch.full_like(parameter, math.nan if step >= 11 else 2.0)
        for parameter in model.latent.parameters():
            parameter.grad = torch.ones_like(parameter)
        callback.on_step(step, loss=math.nan if step == 11 else 1.0)
    callback.close()
    measured_at = {row["step"]: row for row in reported("step") if "grad_norm_text" in row}
    assert set(measured_at) == {10, 12}
    assert measured_at[10]["grad_norm_text"] == pytest.approx(2 * math.sqrt(6))
    assert measured_at[12]["grad_norm_text"] == "NaN"
    assert measured_at[12]["grad_norm_latent"] == pytest.approx(math.sqrt(6))
    quantities = [event["fields"]["quantity"] for event in reported("event")]
    assert quantities == ["loss", "grad_norm_text"]


def test_dataloader_workers_that_are_forked_are_no_ranks(train) -> None:
    training = train(
        """
        import torch
        from torch.utils.data import DataLoader

        class Squares(torch.utils.data.Dataset):
            def __len__(self):
                return 64

            def __getitem__(self, index):
                callback.on_step(10_000 + index, loss=0.0)
                return torch.tensor(float(index * index))

        callback = HealthCallback(out=sys.argv[1])
        step = 0
        for epoch in range(2):
            loader = DataLoader(Squares(), 8, num_workers=2, multiprocessing_context="fork")
            for batch in loader:
                callback.on_step(step, loss=batch.mean(), batch=step % 8)
                step += 1
        callback.close()
        """
    )
    code, errors = training.end()
    assert code == 0, errors
    steps = [row for row in training.rows() if row["type"] == "step"]
    assert [row["step"] for row in steps] == list(range(16))
    assert [row["type"] for row in training.rows()].count("run") == 1


class DeviceQueue(DeviceCopies):
    """Copies on a CPU that happen when the queue is opened, as a device's stream does them.

    No machine with a GPU was at hand: this is the order of things there, with real memory.
    """

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.is_open = False
        self.pending = []

    def _cells(self, slot, count):
        view = super()._cells(slot, count)
        queue = self

        class Cells:
            def data_ptr(self):
                return view.data_ptr()

            def tolist(self):
                return view.tolist()

            def copy_(self, values, *, non_blocking):
                assert non_blocking
                kept = values.clone()
                queue.pending.append(lambda: view.copy_(kept))
                if queue.is_open:
                    queue.open()

        return Cells()

    def open(self) -> None:
        self.is_open = True
        for copy in self.pending:
            copy()
        self.pending.clear()


def test_values_on_a_device_are_read_when_they_came_and_never_waited_for() -> None:
    queue = DeviceQueue()
    first = queue.start([torch.tensor(math.nan), torch.tensor([2.0], dtype=torch.float64)])
    second = queue.start([torch.tensor(3, dtype=torch.int32)])
    assert first is not None
    assert second is not None
    assert (queue.read(first, 2), queue.read(second, 1)) == (None, None)
    queue.open()
    assert str(queue.read(first, 2)) == "[nan, 2.0]"
    assert queue.read(second, 1) == [3.0]


def test_with_too_much_under_way_values_are_left_out_and_slots_come_back() -> None:
    queue = DeviceQueue()
    sent = [queue.start([torch.tensor(float(number))]) for number in range(40)]
    assert [slot is None for slot in sent] == [False] * 32 + [True] * 8
    queue.open()
    arrived = [queue.read(slot, 1) for slot in sent if slot is not None]
    assert arrived == [[float(number)] for number in range(32)]
    again = [queue.start([torch.tensor(9.0)]) for _ in range(32)]
    assert all(slot is not None and queue.read(slot, 1) == [9.0] for slot in again)


class Far(torch.Tensor):
    """A tensor that is not in host memory."""

    is_cpu = False


def test_rows_keep_their_order_and_wait_for_their_values() -> None:
    entries: list = []
    steps = Steps(entries.append, {"rank": 0, "host": "h", "pid": 1})
    queue = steps._copies[torch.device("cpu")] = DeviceQueue()

    def go(step, value) -> None:
        steps.step(step, {"loss": value, "lr": step / 10}, samples=None, tokens=None, batch=step)

    for step in range(3):
        go(step, torch.tensor(float(step)).as_subclass(Far))
    go(3, math.nan)
    assert entries == []
    assert steps.beat.step == 3
    queue.open()
    go(4, 4.0)
    rows = [row for entry in entries for row in Rows(0, 1, lambda: None).make(entry)]
    reported = [(row["step"], row["loss"], row["lr"]) for row in rows if row["type"] == "step"]
    assert (
        str(reported)
        == "[(0, 0.0, 0.0), (1, 1.0, 0.1), (2, 2.0, 0.2), (3, nan, 0.3), (4, 4.0, 0.4)]"
    )
    assert [row["step"] for row in rows if row["type"] == "event"] == [3]


def test_while_a_graph_is_captured_nothing_is_copied(monkeypatch) -> None:
    entries: list = []
    steps = Steps(entries.append, {"rank": 0, "host": "h", "pid": 1})
    queue = steps._copies[torch.device("cpu")] = DeviceQueue()
    loss = torch.tensor(1.0).as_subclass(Far)
    steps.step(1, {"loss": loss}, samples=None, tokens=None, batch=None)
    queue.open()
    with monkeypatch.context() as capturing:
        capturing.setattr("torch.cuda.is_initialized", lambda: True)
        capturing.setattr("torch.cuda.is_current_stream_capturing", lambda: True)
        steps.step(2, {"loss": loss}, samples=None, tokens=None, batch=None)
    steps.settle()
    assert [entry[0] for entry in entries if type(entry) is tuple] == [1, 2]
    assert steps.unread == 1


def test_a_compiled_step_calls_the_callback_as_it_is(health, reported) -> None:
    callback = health()
    weights = torch.ones(3, requires_grad=True)

    def step(number, batch):
        loss = (weights * batch).sum()
        with callback.phase("backward"):
            loss.backward()
        callback.on_step(number, loss=loss, grad_norm=weights.grad.norm())
        return loss * 2

    compiled = torch.compile(step, backend="eager")
    results = [compiled(number, torch.full((3,), float(number))).item() for number in range(1, 5)]
    callback.close()
    assert results == [6.0, 12.0, 18.0, 24.0]
    assert [row["loss"] for row in reported("step")] == [3.0, 6.0, 9.0, 12.0]
    times = [row["time"] for row in reported("step")]
    assert len({*times}) == 4
    assert "values_not_read" not in reported("end")[0]


def test_of_steps_that_get_no_row_nothing_is_copied_from_a_device() -> None:
    steps = Steps(lambda entry: None, {"rank": 0, "host": "h", "pid": 1}, every=10)
    queue = steps._copies[torch.device("cpu")] = DeviceQueue()
    for step in range(1, 21):
        loss = torch.tensor(1.0).as_subclass(Far)
        steps.step(step, {"loss": loss}, samples=None, tokens=None, batch=None)
    assert len(queue.pending) == 2


def test_the_last_values_before_a_hang_are_passed_on_by_the_writers_thread(monkeypatch) -> None:
    entries: list = []
    hurried: list = []
    steps = Steps(
        entries.append, {"rank": 0, "host": "h", "pid": 1}, hurry=lambda: hurried.append(1)
    )
    queue = steps._copies[torch.device("cpu")] = DeviceQueue()
    loss = torch.tensor(math.nan).as_subclass(Far)
    steps.step(1, {"loss": loss}, samples=None, tokens=None, batch=None)
    for copy in queue.pending:
        copy()
    steps.settle_idle()
    assert entries == [], "the loop may come by yet"
    now = time.monotonic()
    monkeypatch.setattr("ldlm_callback.steps.monotonic", lambda: now + 5.0)
    steps.settle_idle()
    (entry,) = entries
    assert hurried == [1], "no step comes that would be written with it"
    assert [row["type"] for row in Rows(0, 1, lambda: None).make(entry)] == ["event", "step"]


def test_on_the_way_from_a_device_no_operator_is_called_that_waits_for_it() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    called = set()

    class Listen(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            called.add(str(operator).removeprefix("aten.").partition(".")[0])
            return operator(*args, **(kwargs or {}))

    steps = Steps(lambda entry: None, {"rank": 0, "host": "h", "pid": 1})
    steps._copies[torch.device("cpu")] = DeviceCopies(torch.device("cpu"))
    values = {
        "loss": torch.tensor(1.0, requires_grad=True).as_subclass(Far),
        "half": torch.tensor([2.0], dtype=torch.bfloat16).as_subclass(Far),
    }
    with Listen():
        for step in range(40):
            steps.step(step, values, samples=8, tokens=None, batch=step)
    assert "stack" in called
    assert called <= {"detach", "_to_copy", "view", "stack", "copy_", "select", "slice", "alias"}
