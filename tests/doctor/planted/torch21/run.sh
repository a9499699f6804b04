# !! torch-nccl-name-ignored: TORCH_NCCL_ASYNC_ERROR_HANDLING=1
# !! nccl-blocking-wait: export NCCL_BLOCKING_WAIT=1
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
export NCCL_BLOCKING_WAIT=1
torchrun train.py
