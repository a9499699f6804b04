export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600
source ./common.sh
torchrun train.py
