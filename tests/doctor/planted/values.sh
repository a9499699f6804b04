#!/bin/bash
# !! bc-exponent: ${BASE_LR} * ${FACTOR}
# !! accumulation-rounded: GRAD_ACCUM_STEPS=
# !! heredoc-not-expanded: Path("${RUN_LOG}")
# !! heredoc-not-ended: SUMMARY "$RUN_LOG"
# !! restore-from-unset: rm -rf my-trainer
# !! setting-not-exported: NCCL_IB_HCA=mlx5_0
# !! many-workers: --num_workers 48
BASE_LR="5e-5"
FACTOR=2
NCCL_IB_HCA=mlx5_0
RUN_LOG=run.jsonl
GRAD_ACCUM_STEPS=$((128 / (BATCH * WORLD)))
LEARNING_RATE=$(echo "scale=10; ${BASE_LR} * ${FACTOR}" | bc)
torchrun train.py --lr "$LEARNING_RATE" --num_workers 48
python3 - <<'ANALYSIS'
from pathlib import Path
print(Path("${RUN_LOG}").read_text())
ANALYSIS
rm -rf my-trainer
cp -r $BACKUP_NAME my-trainer
python3 - << 'SUMMARY'
import sys
print(sys.argv)
SUMMARY "$RUN_LOG"
