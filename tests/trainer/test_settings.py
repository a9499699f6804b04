"""Settings that cannot work are refused before anything starts, with their remedy."""

import ast
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ldlm_trainer.errors import TrainerError

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import ldlm_trainer
from ldlm_trainer.config import Config, load
from ldlm_trainer.preflight import check, sends_bf16, uncommitted, warnings_of

Make = Callable[..., Config]


def test_a_setting_that_no_code_reads_is_refused() -> None:
    """Upstream's silence about unused keys hid that its accumulation never happened."""
    with pytest.raises(TrainerError, match=r"schedule.gradient_accumulation_steps"):
        load(None, ["schedule.gradient_accumulation_steps=4"])


def test_every_setting_is_read_by_code() -> None:
    package = Path(ldlm_trainer.__file__).parent
    trees = [ast.parse(path.read_text()) for path in package.glob("*.py")]
    read = {
        node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    for section, field in Config.model_fields.items():
        kind = field.annotation
        assert kind is not None
        unread = set(kind.model_fields) - read
        assert not unread, f"{section}: {unread}"


def test_the_accumulation_reaches_the_effective_batch_exactly(settings: Make) -> None:
    given = settings(schedule__effective_batch=32, schedule__batch_growth="[[10, 64]]")
    assert given.stages(world=2) == ((0, 4, 4), (10, 4, 8))


def test_micro_batches_grow_beside_the_effective_batch(settings: Make) -> None:
    """The seeds' steps of 2 x 4, 4 x 2 and 8 x 1 samples."""
    given = settings(
        data__batch_size=2, schedule__effective_batch=8, schedule__micro_growth="[[5, 4], [9, 8]]"
    )
    assert given.stages(world=1) == ((0, 2, 4), (5, 4, 2), (9, 8, 1))


def test_an_effective_batch_that_would_be_missed_is_refused(settings: Make) -> None:
    """The seeds' shell arithmetic makes 96 of 128 without a word."""
    given = settings(schedule__effective_batch=128)
    with pytest.raises(TrainerError, match=r"128 .*no multiple of 96.*take 96") as error:
        given.stages(world=24)
    assert error.value.where == "schedule.effective_batch"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["objective.mode=l2t", "objective.freeze=false"], "leaves parameters without gradient"),
        (["ddp.static_graph=true", "objective.mode=sequential"], "the graph of mode sequential"),
        (["ddp.static_graph=true"], "ddp.no_sync"),
        (["schedule.steps=10", "schedule.warmup=10"], "leaves no step"),
        (["schedule.restart_every=50", "schedule.warmup=50"], "longer than warmup"),
        (["schedule.batch_growth=[[20, 8], [10, 4]]"], "must rise"),
        (["schedule.micro_growth=[[5, 0]]"], "must have a sample"),
        (["ddp.compression=powersgd", "ddp.find_unused_parameters=true"], "the same buckets"),
        (["model.width=60", "model.heads=8"], "multiple of 8 heads"),
        (["run.name=../evil"], "run.name"),
        (["schedule.steps"], "write section.key=value"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: list[str], said: str) -> None:
    with pytest.raises(TrainerError) as error:
        load(None, given)
    assert said in str(error.value)


def test_a_file_gives_settings_and_the_command_line_overrides_them(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[run]\nname = "night"\n[optim]\nlr = 5e-4\n')
    given = load(path, ["optim.lr=1e-4"])
    assert (given.run.name, given.optim.lr) == ("night", 1e-4)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"NCCL_TIMEOUT": "1800"}, "read by nobody"),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, "asynchronous errors off"),
        ({"NCCL_BLOCKING_WAIT": "1"}, "asynchronous errors off"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, "unset it"),
        ({"TORCH_NCCL_ENABLE_MONITORING": "0"}, "watchdog"),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "12000000"}, "139 days"),
    ],
)
def test_traps_of_the_environment_are_named(environment: dict[str, str], said: str) -> None:
    (warning,) = warnings_of(environment)
    assert said in warning


def test_a_sane_environment_is_not_warned_of() -> None:
    fine = {"NCCL_DEBUG": "WARN", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1800"}
    assert not list(warnings_of({**fine, "NCCL_BLOCKING_WAIT": "0"}))


def test_preflight_says_what_a_step_will_take(settings: Make) -> None:
    lines = list(check(settings(schedule__effective_batch=32), nodes=2, processes=2))
    assert lines[0] == "from step 0: 2 micro-batches of 4 on each of 4 ranks, 32 samples a step"


def test_preflight_misses_data_that_are_not_there(settings: Make, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="python -m ldlm_trainer prepare"):
        list(check(settings(data__folder=tmp_path / "none"), nodes=1, processes=1))


def test_a_work_tree_that_is_not_committed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(uncommitted()) == []
    subprocess.run(("git", "init", "-q"), check=True)
    assert list(uncommitted()) == []
    (tmp_path / "train.py").write_text("")
    (line,) = uncommitted()
    assert "1 file of this folder's git repository not committed" in line


def test_gradients_in_bf16_are_refused_before_the_launch_where_torch_cannot_send_them(
    settings: Make,
) -> None:
    if sends_bf16():
        pytest.skip("this torch can")
    asked = settings(ddp__compression="bf16")
    with pytest.raises(TrainerError, match="built without CUDA and NCCL"):
        list(check(asked, nodes=1, processes=2))
    assert list(check(asked, nodes=1, processes=1))


def test_a_backend_whose_package_is_missing_is_refused_before_the_launch(settings: Make) -> None:
    if find_spec("mmdit") is not None:
        pytest.skip("mmdit is installed")
    with pytest.raises(TrainerError, match="the package mmdit is not installed"):
        list(check(settings(model__backend="mmdit"), nodes=1, processes=1))
