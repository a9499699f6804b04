#!/bin/bash
# !! heartbeat-timeout-days: ${TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC:-864000}
# !! nccl-monitoring-off: ENABLE_MONITORING=$WATCH
# !! nccl-blocking-wait: TORCH_NCCL_BLOCKING_WAIT=1 torchrun
# !! cuda-launch-blocking: CUDA_LAUNCH_BLOCKING=1
# !! nccl-timeout-unread: ${NCCL_TIMEOUT:-1800}
WATCH=0
export NCCL_TIMEOUT="${NCCL_TIMEOUT:-1800}"
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="${TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC:-864000}"
export TORCH_NCCL_ENABLE_MONITORING=$WATCH TORCH_NCCL_TRACE_BUFFER_SIZE=2000
export TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=$((5 * 1000))
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/tmp/traces/rank_
TORCH_NCCL_BLOCKING_WAIT=1 torchrun --standalone --nproc_per_node=2 train.py
env CUDA_LAUNCH_BLOCKING=1 python train.py
