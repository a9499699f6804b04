#!/bin/bash
# !! nccl-debug-noise: NCCL_DEBUG=INFO
# !! nccl-timeout-unread: NCCL_TIMEOUT=1800
# !! nccl-transport-off: -x NCCL_P2P_DISABLE=1
set -o pipefail
srun bash -c 'export NCCL_DEBUG=INFO; export NCCL_TIMEOUT=1800; torchrun --nproc_per_node=8 train.py'
mpirun -np 8 -x NCCL_P2P_DISABLE=1 python train.py
