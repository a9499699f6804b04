#!/bin/bash
# !! nccl-ib-timeout-range: export NCCL_IB_TIMEOUT=90
export NCCL_IB_TIMEOUT=90
torchrun --nproc_per_node=8 train.py
