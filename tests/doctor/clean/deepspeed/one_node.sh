#!/bin/bash
#SBATCH --time=1-00:00:00
export DEEPSPEED_TIMEOUT=30
torchrun --nnodes=1 --master_addr=localhost train.py --ddp_timeout 1800
torchrun --nnodes=$SLURM_NNODES --master_addr=127.0.0.1 train.py
torchrun --nnodes=2 --master_addr=$MASTER train.py
accelerate launch --num_machines 1 --main_process_ip 127.0.0.1 train.py
