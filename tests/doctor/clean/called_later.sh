#!/bin/bash
train() {
  torchrun train.py "$@" 2>&1 | tee "$log"
}
check() {
  bash run_tests.sh | tee tests.log
}
set -euo pipefail
train --lr 1e-4
