#!/bin/bash
set -eo pipefail
attempt=${SLURM_RESTART_COUNT:-0}
python train.py --resume auto >> train.log 2>&1
python train.py --resume auto 2>&1 | tee -a train.log
python train.py --resume auto > "train_$(date +%s).log"
python train.py --resume auto > "train_${SLURM_JOB_ID}.log"
python train.py --resume false > train.log
python train.py training.resume=null > train.log
python train.py --no-resume > train.log
python train.py --resume auto > /dev/null
python train.py --learning_rate 1e-4 > train.log
rate=$(python -c "print(5e-5 * 2)")
half=$(echo "scale=4; 3 / 2" | bc)
