"""The adapters in real trainings of the frameworks that they are for."""

import importlib.util

import pytest


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def kinds(training) -> list[str]:
    return [row["kind"] for row in training.rows() if row["type"] == "event"]


def steps(training, name: str = "loss") -> list[dict]:
    return [row for row in training.rows() if row["type"] == "step" and name in row]


TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments
from ldlm_callback.huggingface import HealthTrainerCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.calls = 0
    def forward(self, x, labels):
        loss = torch.nn.functional.mse_loss(self.layer(x).squeeze(-1), labels)
        if self.training:
            self.calls += 1
            if self.calls == {bad}:
                loss = loss * float("nan")
            print("call", self.calls, loss.item())
        return {{"loss": loss, "latent_loss": loss.detach() / 2}}

data = [{{"x": torch.ones(4) * n / 8, "labels": torch.tensor(float(n))}} for n in range(8)]
arguments = TrainingArguments(
    output_dir=sys.argv[1], max_steps=4, per_device_train_batch_size=2, learning_rate=1e-2,
    gradient_accumulation_steps={accumulate}, logging_steps=2, save_steps=2, eval_steps=2,
    eval_strategy="steps", report_to=[], use_cpu=True, disable_tqdm=True, max_grad_norm=1.0,
)
Trainer(
    model=Model(), args=arguments, train_dataset=data, eval_dataset=data,
    callbacks=[HealthTrainerCallback(run="run_a")],
).train()
"""


@needs("torch", "transformers", "accelerate")
def test_transformers_steps_evaluations_and_checkpoints_are_reported(train) -> None:
    training = train(TRANSFORMERS.format(bad=-1, accumulate=1))
    output, errors = training.process.communicate(timeout=180)
    assert training.process.returncode == 0, errors
    losses = [float(line.split()[2]) for line in output.splitlines() if line.startswith("call ")]
    reported = steps(training)
    assert [row["step"] for row in reported] == [1, 2, 3, 4]
    assert [row["loss"] for row in reported] == pytest.approx(losses)
    assert [row["latent_loss"] for row in reported] == pytest.approx([loss / 2 for loss in losses])
    assert [row["step"] for row in steps(training, "grad_norm")] == [2, 4]
    assert [row["step"] for row in steps(training, "eval_loss")] == [2, 4]
    pause = ["eval_started", "eval_finished", "checkpoint_started", "checkpoint_saved"]
    assert kinds(training) == ["warning", *pause, *pause]
    header, end = training.rows()[0], training.rows()[-1]
    assert (header["run"], header["framework"]) == ("run_a", "transformers")
    assert header["config"]["gradient_accumulation_steps"] == 1
    assert end["status"] == "finished"


@pytest.mark.long
@needs("torch", "transformers", "accelerate")
def test_a_nan_that_the_trainer_hides_is_reported_and_accumulated_losses_are_means(train) -> None:
    training = train(TRANSFORMERS.format(bad=5, accumulate=2))
    output, errors = training.process.communicate(timeout=180)
    assert training.process.returncode == 0, errors
    losses = [float(line.split()[2]) for line in output.splitlines() if line.startswith("call ")]
    assert "'loss': nan" not in output
    reported = [row["loss"] for row in steps(training)]
    assert reported[:2] == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:4]) / 2])
    assert reported[2] == "NaN"
    assert "nonfinite_metric" in kinds(training)


LIGHTNING = """
import warnings; warnings.simplefilter("ignore")
import logging; logging.disable(logging.INFO)
import torch
import lightning.pytorch as pl
from ldlm_callback.lightning import HealthLightningCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x).squeeze(-1), y)
        print("loss", loss.item())
        if index == {raises}:
            raise ValueError("bad batch")
        return {{"loss": loss, "loss_text": loss.detach() / 2}}
    def validation_step(self, batch, index):
        pass
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.arange(8.0))
loader = torch.utils.data.DataLoader(data, batch_size=2)
pl.Trainer(
    max_epochs=1, accumulate_grad_batches=2, accelerator="cpu", logger=False,
    enable_progress_bar=False, default_root_dir=sys.argv[1],
    callbacks=[HealthLightningCallback(run="run_a")],
).fit(Model(), loader, loader)
"""


@needs("torch", "lightning")
def test_lightning_reports_optimizer_steps_and_whole_losses(train) -> None:
    training = train(LIGHTNING.format(raises=-1))
    output, errors = training.process.communicate(timeout=180)
    assert training.process.returncode == 0, errors
    losses = [float(line.split()[1]) for line in output.splitlines() if line.startswith("loss ")]
    means = [sum(losses[:2]) / 2, sum(losses[2:]) / 2]
    reported = steps(training)
    assert [row["step"] for row in reported] == [1, 2]
    assert [row["loss"] for row in reported] == pytest.approx(means)
    assert [row["loss_text"] for row in reported] == pytest.approx([mean / 2 for mean in means])
    assert [row["learning_rate"] for row in reported] == [0.01, 0.01]
    assert kinds(training).count("eval_started") == kinds(training).count("eval_finished") == 2
    assert "checkpoint_saved" in kinds(training)
    assert training.rows()[-1]["status"] == "finished"


@pytest.mark.long
@needs("torch", "lightning")
def test_an_exception_in_lightnings_fit_is_reported(train) -> None:
    training = train(LIGHTNING.format(raises=2))
    training.process.communicate(timeout=180)
    assert training.process.returncode == 1
    ends = [row for row in training.rows() if row["type"] == "end"]
    assert [(row["status"], row["error"]) for row in ends] == [("failed", "ValueError: bad batch")]


@needs("torch", "accelerate")
def test_what_accelerate_logs_is_reported(train) -> None:
    training = train(
        """
        import torch
        from accelerate import Accelerator
        from ldlm_callback.accelerate import HealthTracker
        accelerator = Accelerator(cpu=True, log_with=HealthTracker(run="run_a", out=sys.argv[1]))
        accelerator.init_trackers("project", config={"learning_rate": 0.01})
        for step in range(1, 4):
            accelerator.log({"loss": torch.tensor(2.0 / step), "step": step}, step=step)
        accelerator.end_training()
        """
    )
    code, errors = training.end()
    assert code == 0, errors
    header, *reported, end = training.rows()
    assert (header["run"], header["config"]) == ("run_a", {"learning_rate": 0.01})
    assert [(row["step"], row["loss"]) for row in reported] == [
        (1, 2.0),
        (2, 1.0),
        (3, pytest.approx(2 / 3)),
    ]
    assert end["status"] == "finished"


KERAS = """
import os
os.environ["KERAS_BACKEND"] = {backend!r}
import keras, numpy
from ldlm_callback.keras import HealthKerasCallback

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse", metrics=["mae"])
x, y = numpy.ones((8, 4), "float32"), numpy.arange(8, dtype="float32")[:, None]
if {bad}:
    y[5] = float("nan")
model.fit(
    x, y, batch_size=2, epochs=2, shuffle=False, verbose=0, validation_data=(x, x[:, :1]),
    callbacks=[HealthKerasCallback(run="run_a", out=sys.argv[1])],
)
"""


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=needs("jax")), "torch"])
@needs("torch", "keras")
def test_keras_reports_batches_evaluations_and_its_rate(train, backend: str) -> None:
    training = train(KERAS.format(backend=backend, bad=False))
    code, errors = training.end()
    assert code == 0, errors
    reported = steps(training)
    assert [row["step"] for row in reported] == list(range(1, 9))
    assert [row["epoch"] for row in reported] == [0] * 4 + [1] * 4
    assert [row["learning_rate"] for row in reported] == pytest.approx([0.01] * 8)
    assert all("mae" in row for row in reported)
    assert [row["total_steps"] for row in steps(training, "total_steps")] == [8]
    assert [row["step"] for row in steps(training, "eval_loss")] == [4, 8]
    assert kinds(training).count("eval_started") == kinds(training).count("eval_finished") == 2
    assert training.rows()[0]["framework"] == "keras"
    assert training.rows()[-1]["status"] == "finished"


@pytest.mark.long
@needs("torch", "keras")
def test_a_nan_in_keras_is_an_event(train) -> None:
    training = train(KERAS.format(backend="torch", bad=True))
    code, errors = training.end()
    assert code == 0, errors
    assert "nonfinite_metric" in kinds(training)
    assert [row["loss"] for row in steps(training)][2] == "NaN"


ASKED = """
import json
from ldlm_callback import stop_request
os.environ["LDLM_RUN"] = "launch"
os.makedirs(sys.argv[1])
asks = {{"schema": stop_request.SCHEMA, "launch": "launch", "step": 1, "reason": "NaN"}}
with open(os.path.join(sys.argv[1], stop_request.NAME), "w") as file:
    json.dump(asks, file)
"""
"""A request that is there from the start: it is read while steps are done, so each is late."""


def last_step_of_stopped(training) -> int:
    """The step at which a training without an end has stopped as it was asked to."""
    code, errors = training.end()
    assert code == 0, errors
    (said,) = [row for row in training.rows() if row.get("kind") == "run_action"]
    assert said["message"].startswith(f"stops at step {said['step']} as ldlm-monitor run asked")
    assert max(row["step"] for row in steps(training)) == said["step"]
    assert training.rows()[-1]["status"] == "finished"
    return said["step"]


@needs("torch", "transformers", "accelerate")
def test_transformers_stops_and_saves_nothing_that_a_resume_would_take(train) -> None:
    program = TRANSFORMERS.replace("max_steps=4", "max_steps=10**6")
    program = program.replace("save_steps=2, eval_steps=2", "save_steps=10**6, eval_steps=10**6")
    training = train((ASKED + program).format(bad=-1, accumulate=1))
    assert last_step_of_stopped(training) > 0
    assert not list(training.out.glob("checkpoint-*"))


@pytest.mark.long
@needs("torch", "lightning")
def test_lightning_stops_where_it_is_asked_to(train) -> None:
    program = LIGHTNING.replace("max_epochs=1,", "max_epochs=10**6,")
    assert last_step_of_stopped(train((ASKED + program).format(raises=-1))) > 0


@pytest.mark.long
@needs("torch", "keras")
def test_keras_stops_where_it_is_asked_to(train) -> None:
    program = KERAS.replace("epochs=2,", "epochs=10**6,")
    assert last_step_of_stopped(train((ASKED + program).format(backend="torch", bad=False))) > 0
