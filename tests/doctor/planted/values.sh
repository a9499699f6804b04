#!/bin/bash
# !! accumulation-rounded: GRAD_ACCUM_STEPS=
# !! restore-from-unset: rm -rf my-trainer
BASE_LR="5e-5"
NCCL_IB_HCA=mlx5_0
GRAD_ACCUM_STEPS=$((128 / (BATCH * WORLD)))
torchrun train.py --lr "$BASE_LR" --num_workers 48
rm -rf my-trainer
cp -r $BACKUP_NAME my-trainer
python3 - << 'SUMMARY'
import sys
print(sys.argv)
SUMMARY "$RUN_LOG"
