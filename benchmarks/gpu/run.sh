#!/bin/sh
# All that only a GPU can show: tests/together/gpu, and what callback and trainer cost there.
#
#   sh benchmarks/gpu/run.sh
#
# A part that fails does not keep the others from running. The exit code is 0 if all passed, 1 if
# one did not, 2 where there is no GPU that PyTorch can use.
set -u
cd "$(dirname "$0")/../.."

no_gpu() {
    echo "benchmarks/gpu/run.sh: no GPU here: $1; nothing was run" >&2
    exit 2
}

cards=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) ||
    no_gpu "nvidia-smi lists none"
sh setup.sh dev || exit
python=.venv/bin/python
# Not in the lock: which build fits depends on the machine.
"$python" -c 'import torch' 2>/dev/null || .venv/bin/pip install --quiet 'torch==2.13.0' || exit
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    no_gpu "$("$python" -c 'import torch; print("torch", torch.__version__)') cannot use it"
echo "$cards"

failed=
part() {
    printf '\n== %s\n' "$*"
    "$python" "$@" || failed="$failed $2"
}
part -m pytest -rs tests/together/gpu
part -u benchmarks/callback_overhead.py
part -u benchmarks/callback_watch.py --device cuda
part -u benchmarks/trainer/improvements.py --profile gpu
part -u benchmarks/trainer/scaling.py --processes $(seq -s ' ' "$(echo "$cards" | wc -l)")
[ -z "$failed" ] || {
    echo "benchmarks/gpu/run.sh: failed:$failed" >&2
    exit 1
}
