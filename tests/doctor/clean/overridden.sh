#!/bin/bash
# What comes later wins; what is unset or never leaves the shell is no setting.
set -o pipefail
export NCCL_DEBUG=INFO
export NCCL_P2P_DISABLE=1
export TORCH_NCCL_BLOCKING_WAIT=1
export NCCL_TIMEOUT=1800
NCCL_DEBUG=WARN
unset NCCL_P2P_DISABLE NCCL_TIMEOUT
export -n TORCH_NCCL_BLOCKING_WAIT
unset NCCL_SHM_DISABLE
PORT=29500
cat > job.sh <<JOB
export NCCL_TIMEOUT=7200
torchrun train.py | tee train.log
JOB
: <<'NOTES'
export TORCH_NCCL_ENABLE_MONITORING=0
NOTES
grep -q 'NCCL_BLOCKING_WAIT=1' job.sh && echo "old script"
python - <<'PY'
import os
os.environ.get("NCCL_DEBUG")
print("${HOME}")
PY
torchrun --master_port $PORT train.py | tee train.log
