#!/usr/bin/env bash
# Makes the logs of this folder: three real trainings with two processes, about a minute each.
# Needs torchrun on the PATH (pip install torch numpy tqdm).
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p train_logs

train() {
    torchrun --standalone --nproc_per_node=2 small_training.py "$@" 2>&1 |
        tee "train_logs/train_$(date +%Y%m%d_%H%M%S)_node0.log"
}

train --name healthy
train --name bad_latents --corrupt latents --epochs 1
# The third one crashes: that is what it is for.
! train --name bad_token --corrupt tokens
