export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NCCL_IB_GID_INDEX=3
torchrun train.py
