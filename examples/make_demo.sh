#!/usr/bin/env bash
# Records the trainings that `ldlm-monitor demo` plays: three at once, three ranks each, with a
# NaN, a rank that is slow, and a rank that hangs. About eight minutes on two cores.
#
#   python -m ldlm_trainer prepare data && bash examples/make_demo.sh demo.jsonl.gz
set -euo pipefail

OUT=$1
PYTHON=${PYTHON:-python}
# A step a second, so that three trainings share two cores.
PACE="slow@1:seconds=0.9:for=100000"
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 TORCH_FR_BUFFER_SIZE=2000

mkdir -p train_logs
"$PYTHON" -m ldlm_monitor 'train_logs/*.log' 'saved/*/*.jsonl' --headless --record demo.live --state-dir state \
    >monitor.out 2>&1 &
monitor=$!

# train NAME STEPS FAULTS [SETTING...]
train() {
    local name=$1 steps=$2 faults=$3
    shift 3
    "$PYTHON" -m torch.distributed.run --standalone --nproc_per_node 3 -m ldlm_trainer train \
        data.folder=data data.batch_size=16 schedule.steps="$steps" schedule.warmup=30 \
        run.name="$name" run.eval_every=100 run.save_every=200 run.log_every=5 \
        run.faults="$PACE,$faults" "$@" >"train_logs/$name.log" 2>&1 || true
}

train lr-3e-3 330 "nan_loss@150:rank=1:for=3" optim.lr=3e-3 &
first=$!
train wide 215 "slow@30:seconds=0.9:rank=2:for=100000" model.width=96 &
second=$!
train t2l 600 "hang@120:rank=2" objective.mode=t2l run.step_timeout=150 &
wait $! "$first" "$second"
sleep 15
kill -TERM "$monitor"
wait "$monitor" || true
gzip -dc demo.live | gzip -9n >"$OUT" # packed once more, and better than a second at a time
