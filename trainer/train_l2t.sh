#!/usr/bin/env bash
# Trains on this node; start it on every node of a run with the same variables but NODE_RANK.
#
#   NNODES=1 NPROC_PER_NODE=2 DATA_DIR=data bash trainer/train_l2t.sh [section.key=value ...]
#
# Everything goes into train_logs/train_<time>_node<rank>.log as well. The exit code is
# torchrun's: 1 also after a SIGTERM to this script, upon which the run saves and stops.
set -euo pipefail

NNODES=${NNODES:-1}
NODE_RANK=${NODE_RANK:-0}
NPROC_PER_NODE=${NPROC_PER_NODE:-1}
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
MASTER_PORT=${MASTER_PORT:-29500}
MAX_RESTARTS=${MAX_RESTARTS:-0}
PYTHON=${PYTHON:-python}

DATA_DIR=${DATA_DIR:-data}
DATA_WORKERS=${DATA_WORKERS:-2}
L2T_RUN_NAME=${L2T_RUN_NAME:-l2t}
L2T_SAVE_DIR=${L2T_SAVE_DIR:-saved}
L2T_MODE=${L2T_MODE:-l2t}
# The seeds' names with BASE are taken too. Nothing scales with the number of GPUs unasked.
L2T_STEPS=${L2T_STEPS:-${L2T_BASE_STEPS:-1000}}
L2T_SAVE_FREQ=${L2T_SAVE_FREQ:-${L2T_BASE_SAVE_FREQ:-500}}
L2T_LOG_FREQ=${L2T_LOG_FREQ:-${L2T_BASE_LOG_FREQ:-10}}
L2T_EVAL_FREQ=${L2T_EVAL_FREQ:-${L2T_BASE_EVAL_FREQ:-250}}
L2T_TRAIN_BS=${L2T_TRAIN_BS:-4}
L2T_COMPILE=${L2T_COMPILE:-false}
# Samples of a step over all ranks: refused where micro-batches do not make it exactly.
EFFECTIVE_BATCH_SIZE=${EFFECTIVE_BATCH_SIZE:-0}
LEARNING_RATE=${LEARNING_RATE:-1e-3}
WARMUP_STEPS=${WARMUP_STEPS:-50}
GRAD_CLIP_NORM=${GRAD_CLIP_NORM:-0.5}
LATENT_LOSS_WEIGHT=${LATENT_LOSS_WEIGHT:-1.0}
DTYPE=${DTYPE:-fp32}

# What torch does where nobody asked otherwise, but for more evidence after a hang.
export TORCH_FR_BUFFER_SIZE=${TORCH_FR_BUFFER_SIZE:-2000}
export TORCH_NCCL_DUMP_ON_TIMEOUT=${TORCH_NCCL_DUMP_ON_TIMEOUT:-1}
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export PYTHONUNBUFFERED=1

settings=(
    "data.folder=$DATA_DIR" "data.workers=$DATA_WORKERS" "data.batch_size=$L2T_TRAIN_BS"
    "objective.mode=$L2T_MODE" "objective.latent_weight=$LATENT_LOSS_WEIGHT"
    "schedule.steps=$L2T_STEPS" "schedule.warmup=$WARMUP_STEPS"
    "schedule.effective_batch=$EFFECTIVE_BATCH_SIZE"
    "optim.lr=$LEARNING_RATE" "optim.clip_norm=$GRAD_CLIP_NORM" "optim.precision=$DTYPE"
    "model.compile=$L2T_COMPILE"
    "run.name=$L2T_RUN_NAME" "run.save_dir=$L2T_SAVE_DIR" "run.save_every=$L2T_SAVE_FREQ"
    "run.log_every=$L2T_LOG_FREQ" "run.eval_every=$L2T_EVAL_FREQ"
    "$@"
)

# A log of its own, also for two launches within a second.
mkdir -p train_logs
while log="train_logs/train_$(date +%Y%m%d_%H%M%S)_node$NODE_RANK.log"; ! (set -C; : >"$log") 2>/dev/null; do
    sleep 0.2
done

echo "Preflight checks"
"$PYTHON" -m ldlm_trainer preflight --nodes "$NNODES" --processes "$NPROC_PER_NODE" "${settings[@]}" || {
    code=$?
    rm -f "$log"
    exit "$code"
}
echo "Log: $log"

if [ "$NNODES" -eq 1 ]; then
    meeting=(--standalone)
else
    meeting=(--nnodes "$NNODES" --node_rank "$NODE_RANK"
        --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT")
fi

# torchrun is sent the signals of this script; tee must outlive it to write its last lines.
set +e
"$PYTHON" -m torch.distributed.run "${meeting[@]}" --nproc_per_node "$NPROC_PER_NODE" \
    --max_restarts "$MAX_RESTARTS" -m ldlm_trainer train "${settings[@]}" \
    > >(trap '' INT TERM; exec tee -a "$log") 2>&1 &
launcher=$!
trap 'kill -TERM "$launcher" 2>/dev/null' TERM
trap 'kill -INT "$launcher" 2>/dev/null' INT
wait "$launcher"
code=$?
while kill -0 "$launcher" 2>/dev/null; do # a signal ends `wait` before it ends torchrun
    wait "$launcher"
    code=$?
done
exit "$code"
