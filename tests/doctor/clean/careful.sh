#!/usr/bin/env bash
# Defaults that the caller may change, a fixed watchdog, and a log for each attempt.
set -euo pipefail
: "${WANDB_API_KEY:?export it before}"
export WANDB_API_KEY
export HF_TOKEN="${HF_TOKEN:-$(cat ~/.cache/huggingface/token)}"
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="${TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC:-900}"
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$SHARED/traces/rank_"
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
export NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log
if [[ "${DEBUG:-0}" == 1 ]]; then
  export NCCL_DEBUG=INFO CUDA_LAUNCH_BLOCKING=1
  export TORCH_DISTRIBUTED_DEBUG=DETAIL
fi
log="logs/train_$(date +%Y%m%d_%H%M%S).log"
echo "export NCCL_TIMEOUT=1800 does nothing; NCCL_BLOCKING_WAIT=1 neither"
if (( TARGET % (MICRO * WORLD) != 0 )); then
  echo "not divisible" >&2
  exit 1
fi
accumulation=$(( TARGET / (MICRO * WORLD) ))
torchrun --standalone --nproc_per_node=8 train.py \
  --resume_from_checkpoint "${RESUME:-}" --accumulation "$accumulation" --num-workers 4 \
  2>&1 | tee "$log"
