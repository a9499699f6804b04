"""What failed, as messages show it."""

from ldlm_monitor.notify.message import Story

OUT_OF_MEMORY = Story(
    id="r1/1",
    title="CUDA out of memory on rank 3 (gpu04) -> timeout on 7 ranks at step 120",
    cause="CUDA out of memory on rank 3",
    confidence="confirmed",
    why=("its traceback", "its peers lost it"),
    excerpt=(("train.log:17", "torch.OutOfMemoryError: CUDA out of memory"),),
    action="Lower BATCH_SIZE.",
    events=12,
    opened_at=1_700_000_000.0,
    ended_at=None,
)
