#!/bin/bash
# What is unsure, or does not reach a training, is nothing.
set -o pipefail
WORKERS="--num_workers 64"
if [ -n "$FAST" ]; then
  WORKERS="--num_workers 2"
fi
torchrun train.py $WORKERS
NOTES="NCCL_TIMEOUT=7200 --num_workers 99"
echo "$NOTES"
ssh node1 "echo 'export NCCL_TIMEOUT=7200' >> notes.txt"
ssh node1 'grep NCCL_BLOCKING_WAIT=1 /logs/train.log'
ssh -o StrictHostKeyChecking=no node1 "pkill -f train.py"
bash -c 'torchrun train.py | tee x.log; exit ${PIPESTATUS[0]}'
cat > notes.sh <<NOTES
export NCCL_TIMEOUT=7200
torchrun train.py | tee train.log
NOTES
docker run -v /data:/data -w /work image true
LINE="a   b"
ARGS=(--name "NCCL_DEBUG=INFO --num_workers 64")
torchrun train.py "${ARGS[@]}" "$LINE"
MANY="--num_workers 64"
if [ -n "$FEW" ]; then
  MANY=$(echo "$MANY" | sed s/64/2/)
fi
torchrun train.py $MANY
