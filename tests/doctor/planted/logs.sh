#!/bin/bash
# !! exit-code-hidden: | tee train.log
# !! exit-code-hidden: |& tee "$LOG"
# !! exit-code-hidden: $LAUNCH finetune.py
# !! exit-code-hidden: bash train_stage2.sh
LOG=run.log
LAUNCH="accelerate launch --num_processes 4"
torchrun --nproc_per_node 4 train.py --resume ckpt/last.pt 2>&1 | tee train.log
if ! python -m torch.distributed.run train.py |& tee "$LOG"; then
  echo failed
fi
$LAUNCH finetune.py | tee -a finetune.log
deepspeed train.py --resume_from_checkpoint out/last > out.log 2>&1
python pretrain.py trainer.resume=latest &> "$LOG"
bash train_stage2.sh 2>&1 | tee stage2.log
command="torchrun train.py $OPTIONS"
command="$command | tee eval_$NAME.log"
eval ${command}
