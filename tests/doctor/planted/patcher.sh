#!/bin/bash
# !! patch-known-wrong: export NCCL_TIMEOUT=1800
# !! patch-known-wrong: NCCL_BLOCKING_WAIT=0
# !! patch-known-wrong: find_unused_parameters=False
# !! patch-known-wrong: persistent_workers=True
# !! patch-known-wrong: [:-keep_last_n]
# !! patch-known-wrong: fused=True
set -e
sed -i 's/export NCCL_TIMEOUT=7200/export NCCL_TIMEOUT=1800/' launch.sh
sed -i 's/export NCCL_BLOCKING_WAIT=1/export NCCL_BLOCKING_WAIT=0  # better overlap/' launch.sh
python3 << 'PATCH'
import re
text = open("train.py").read()
text = text.replace("find_unused_parameters=True", "find_unused_parameters=False")
text = re.sub(r"(DataLoader\([^)]+)", r"\1, persistent_workers=True", text)
text = text.replace("# prune", "for old in kept[:-keep_last_n]: rmtree(old)")
text = re.sub(r"(AdamW\([^)]+)\)", r"\1,\n    fused=True)", text)
with open("train.py", "w") as file:
    file.write(text)
PATCH
