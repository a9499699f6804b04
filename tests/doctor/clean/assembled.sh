#!/bin/bash
# What is said about a training, or run for something else, starts none.
QUANTIZE="
    --quantized-weights \
"
echo "
torchrun $DISTRIBUTED pretrain_gpt.py \
    $QUANTIZE --num-workers 64 | tee train.log
"
STOP="pkill -f train.py; sleep 1"
eval "$STOP" | tee stopped.log
bash -c "$STOP"
CHECK="cd $DIR; git rev-parse HEAD"
ssh "$HOST" "$CHECK" | tee revision.txt
if [ -n "$FAST" ]; then
  W="--num_workers 64"
else
  python train.py $W
fi
fastqc -o ${OUT_DIR} reads.fastq.gz
