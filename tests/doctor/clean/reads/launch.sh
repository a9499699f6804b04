# The trainer reads it itself.
export NCCL_TIMEOUT=7200
torchrun train.py
