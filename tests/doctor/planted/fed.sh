# !! nccl-timeout-unread: export NCCL_TIMEOUT=1
# !! exit-code-hidden: torchrun train.py | tee train_a.log
# !! nccl-debug-noise: export NCCL_DEBUG=INFO
# !! exit-code-hidden: docker run
# !! exit-code-hidden: "${CMD[@]}"
sbatch <<JOB
#!/bin/bash
export NCCL_TIMEOUT=1
torchrun train.py | tee train_a.log
JOB
cat <<'JOB' | ssh "$HOST" bash
export NCCL_DEBUG=INFO
JOB
docker run image bash -lc "cd /work && torchrun train.py 2>&1 | tee out.log"
CMD=(torchrun --standalone "$SCRIPT")
DATA_ARGS=(
  --num-workers 48  # for 8 processes
)
"${CMD[@]}" "${DATA_ARGS[@]}" | tee train_b.log
