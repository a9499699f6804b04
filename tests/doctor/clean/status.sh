#!/bin/bash
# Both ways to keep an exit code without pipefail.
torchrun train.py 2>&1 | tee first.log
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then exit "$status"; fi
torchrun train.py > >(tee second.log) 2>&1
ls | tee files.txt
python -c 'print(1)' | tee one.txt
python prepare_data.py | tee prepared.txt
