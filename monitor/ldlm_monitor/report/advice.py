"""What to change, in the words of the user's own settings, for each alert that fires.

The settings are those of MM-LDLM's launch script; other trainers' spellings of the
same thing are found in the run's configuration under `aliases`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as the launch script spells it, and as configurations elsewhere do."""

    name: str
    aliases: tuple[str, ...] = ()

    def current(self, settings: Mapping[str, str]) -> str | None:
        """The logged value; None where none was logged."""
        known = {key.rpartition(".")[2].casefold(): value for key, value in settings.items()}
        names = (self.name.casefold(), *self.aliases)
        return next((known[name] for name in names if name in known), None)


@dataclass(frozen=True, slots=True)
class Advice:
    """Change `setting` by `factor`, or to the value `to`, because of `reason`."""

    setting: Setting
    reason: str
    factor: float | None = None
    to: str | None = None

    def text(self, settings: Mapping[str, str]) -> str | None:
        """One sentence; None where the setting has the advised value already."""
        now = self.setting.current(settings)
        if self.to is not None and now == self.to:
            return None
        aim = self.to if self.to is not None else self._scaled(now)
        known = f" (now {now})" if now else ""
        if aim is None:
            verb = "lower" if (self.factor or 1) < 1 else "raise"
            return f"{verb} {self.setting.name}{known}: {self.reason}"
        return f"{self.setting.name}={aim}{known}: {self.reason}"

    def _scaled(self, now: str | None) -> str | None:
        try:
            value = float(now) if now and self.factor else None
        except ValueError:
            return None
        if value is None or not self.factor:
            return None
        scaled = value * self.factor
        if now and now.isdecimal():
            return str(round(scaled)) if scaled >= 1 else None
        return f"{scaled:g}"


LEARNING_RATE = Setting("LEARNING_RATE", ("lr", "max_lr"))
GRAD_CLIP_NORM = Setting("GRAD_CLIP_NORM", ("grad_clip", "max_grad_norm", "gradient_clip_val"))
WARMUP_STEPS = Setting("WARMUP_STEPS", ("num_warmup_steps", "lr_warmup_steps"))
BATCH_SIZE = Setting(
    "L2T_TRAIN_BS", ("train_batch_size", "per_device_train_batch_size", "micro_batch_size")
)
DATA_WORKERS = Setting("DATA_WORKERS", ("num_workers", "dataloader_num_workers"))
DTYPE = Setting("DTYPE", ("precision", "mixed_precision"))
SAVE_FREQ = Setting("L2T_SAVE_FREQ", ("save_freq", "save_steps", "save_interval"))
BLOCKING_WAIT = Setting("TORCH_NCCL_BLOCKING_WAIT")
NCCL_MONITORING = Setting("TORCH_NCCL_ENABLE_MONITORING")
NCCL_DEBUG = Setting("NCCL_DEBUG")
FLIGHT_RECORDER = Setting("TORCH_NCCL_TRACE_BUFFER_SIZE", ("torch_fr_buffer_size",))
BLOCKING_LAUNCH = Setting("CUDA_LAUNCH_BLOCKING")
DISTRIBUTED_DEBUG = Setting("TORCH_DISTRIBUTED_DEBUG")
ALLOCATOR = Setting("PYTORCH_CUDA_ALLOC_CONF", ("pytorch_alloc_conf",))

_SMALLER_STEP = Advice(
    LEARNING_RATE, "too large a step is the most frequent cause of divergence", factor=0.5
)
_LONGER_WARMUP = Advice(
    WARMUP_STEPS, "if it happens in, or soon after, the warm-up, make that gentler", factor=2
)
_MORE_PRECISION = Advice(DTYPE, "one short run shows whether precision is the cause", to="fp32")
_NO_BLOCKING_WAIT = Advice(
    BLOCKING_WAIT, "1 switches the asynchronous abort of a hung collective off", to="0"
)
_WATCHDOG = Advice(NCCL_MONITORING, "lets PyTorch end a process whose watchdog hangs", to="1")
_RECORD_COLLECTIVES = Advice(
    FLIGHT_RECORDER, "the flight recorder then names the rank that did not join", to="2000"
)
_CLIP = Advice(GRAD_CLIP_NORM, "bounds what one bad batch can do", factor=0.5)
_SAVE_MORE_OFTEN = Advice(SAVE_FREQ, "less is lost when a run ends early", factor=0.5)

ADVICE: dict[str, tuple[Advice, ...]] = {
    "NonFiniteLoss": (_SMALLER_STEP, _LONGER_WARMUP, _MORE_PRECISION),
    "NonFiniteGradient": (_SMALLER_STEP, _MORE_PRECISION),
    "GradientNormHigh": (_CLIP, _LONGER_WARMUP),
    "TrainingStalled": (
        _NO_BLOCKING_WAIT,
        _WATCHDOG,
        Advice(DATA_WORKERS, "if the stack shows the data loader waiting", factor=0.5),
    ),
    "NcclTimeout": (_RECORD_COLLECTIVES, _NO_BLOCKING_WAIT),
    "NcclError": (Advice(NCCL_DEBUG, "says which transport and peer failed", to="INFO"),),
    "OutOfMemory": (
        Advice(BATCH_SIZE, "activation memory grows with the batch", factor=0.5),
        Advice(ALLOCATOR, "helps against fragmentation", to="expandable_segments:True"),
    ),
    "JobKilled": (
        Advice(DATA_WORKERS, "if the host ran out of memory: each worker has its own", factor=0.5),
        _SAVE_MORE_OFTEN,
    ),
    "TrainingCrashed": (_SAVE_MORE_OFTEN,),
    "GpuError": (Advice(BLOCKING_LAUNCH, "names the kernel that fails", to="1"),),
    "RankLost": (_WATCHDOG, _SAVE_MORE_OFTEN),
    "CollectiveMismatch": (
        Advice(DISTRIBUTED_DEBUG, "names the calls that do not fit", to="DETAIL"),
        _RECORD_COLLECTIVES,
    ),
    "DataLoaderFailed": (
        Advice(DATA_WORKERS, "each worker takes host and shared memory", factor=0.5),
    ),
    "DiskFull": (Advice(SAVE_FREQ, "fewer checkpoints take less space", factor=2),),
    "RestartStorm": (_SAVE_MORE_OFTEN,),
    "LossDiverging": (_SMALLER_STEP, _LONGER_WARMUP),
    "LossSpike": (_SMALLER_STEP, _CLIP),
    "LossPlateau": (),
    "LossConstant": (_SMALLER_STEP, _MORE_PRECISION),
    "LossScaleCollapsed": (_SMALLER_STEP, _MORE_PRECISION),
    "StepsSkipped": (_SMALLER_STEP, _LONGER_WARMUP),
    "ThroughputDrop": (Advice(DATA_WORKERS, "if the GPUs wait for data", factor=2),),
    "ThroughputUnstable": (Advice(DATA_WORKERS, "if the GPUs wait for data", factor=2),),
    "RankStraggling": (_RECORD_COLLECTIVES,),
    "MemoryGrowing": (_SAVE_MORE_OFTEN,),
    "CheckpointStale": (),
}
"""None for the alerts about the monitor itself, which no setting of the training mends."""


def recommendations(alerts: Iterable[str], settings: Mapping[str, str]) -> list[str]:
    """Sentences for the alerts of these names, each once, in the alerts' order."""
    advised = (advice.text(settings) for alert in alerts for advice in ADVICE.get(alert, ()))
    return list(dict.fromkeys(text for text in advised if text))
