#!/bin/bash
torchrun --nnodes=2 --nproc_per_node=8 --master_addr=localhost train.py
DIST="--nnodes 4 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:29500"
torchrun $DIST train.py
accelerate launch --num_machines 2 --main_process_ip 127.0.0.1 train.py
