torchrun train.py
