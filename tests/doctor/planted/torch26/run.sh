# !! flight-recorder-never-dumps: torchrun
torchrun train.py
