"""Lines that say that a training fails, as trainers and libraries write them."""

NAN = "WARNING: Invalid text_loss detected: nan\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
NCCL = (
    "[rank3]:[E129 10:15:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1024, "
    "NumelOut=1024, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 12, in <module>\n'
    "    main()\n"
    '  File "train.py", line 9, in main\n'
    "    batch = next(batches)\n"
    "ValueError: the batch is empty\n"
)
