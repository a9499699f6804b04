#!/bin/bash
set -o pipefail
export NCCL_DEBUG=TRACE TORCH_DISTRIBUTED_DEBUG=DETAIL CUDA_LAUNCH_BLOCKING=1
export NCCL_DEBUG_SUBSYS=ALL NCCL_P2P_DISABLE=1
torchrun --nproc_per_node=2 debug_allreduce.py
