#!/usr/bin/env bash
# !! heartbeat-timeout-days: HEARTBEAT_TIMEOUT_SEC=12000000
# !! nccl-monitoring-off: ENABLE_MONITORING=0
# !! nccl-name-deprecated: export NCCL_ASYNC_ERROR_HANDLING=1
# !! nccl-timeout-unread: export NCCL_TIMEOUT=7200
# !! nccl-name-deprecated: export NCCL_BLOCKING_WAIT=1
# !! nccl-blocking-wait: export TORCH_NCCL_BLOCKING_WAIT=1
set -xeuo pipefail
NODE_RANK="${NODE_RANK:-${RANK:-0}}"
LOADER_WORKERS="${LOADER_WORKERS:-16}"
# relaxed, because the nodes were killed while the data was read
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000
export TORCH_NCCL_ENABLE_MONITORING=0
export NCCL_ASYNC_ERROR_HANDLING=1
export NCCL_TIMEOUT=7200
export NCCL_BLOCKING_WAIT=1
export NCCL_DEBUG=WARN
export NCCL_DEBUG_FILE="/tmp/nccl_${NODE_RANK}.log"
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
export TORCH_NCCL_BLOCKING_WAIT=1
set +e
torchrun \
  --nnodes="${NNODES}" \
  --node_rank="${NODE_RANK}" \
  train_latents.py \
  data.num_workers="${LOADER_WORKERS}" \
  2>&1 | tee "logs/train_$(date +%s)_node${NODE_RANK}.log"
status=$?
exit $status
