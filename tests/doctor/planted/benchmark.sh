#!/bin/bash
# !! exit-code-hidden: bash train_stable.sh
# !! step-unknown-to-shell: state_step:-0}" -lt 10000
# !! step-unknown-to-shell: state_step:-0}" -lt 50000
set -e
extract() {
  python3 << 'SCRIPT'
import sys
print(sys.argv[1])
SCRIPT "$1" "$2"
}
bench() {
  STEPS=100 \
    bash train_stable.sh 2>&1 | tee "benchmarks/$1"
  extract "$1" "$1.json"
}
if [ "${state_step:-0}" -lt 10000 ]; then
  BATCH=2
elif [ "${state_step:-0}" -lt 50000 ]; then
  BATCH=4
fi
python3 << 'SCRIPT'
print("compared")
SCRIPT
bench "$1"
