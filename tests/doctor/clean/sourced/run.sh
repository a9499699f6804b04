#!/bin/bash
# What a file sets that is taken over counts here, and what is taken away does not.
export NCCL_DEBUG=INFO
export NCCL_P2P_DISABLE=1
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
export $(grep -v '^#' settings.env | xargs)
source "$(dirname "$0")/common.sh"
env -u NCCL_P2P_DISABLE torchrun train.py
bash inner.sh
