# !! flight-recorder-off: torchrun
torchrun train.py
