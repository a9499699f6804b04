#!/usr/bin/env bash
# The nine phases of MM-LDLM's migration guide, one after the other on our trainer: a bench for
# each and what compare says of it (docs/compare.md). With the extra [trainer] installed:
#
#   bash examples/nine_phases.sh FOLDER
#
# STEPS (default 300) of width WIDTH (64) and depth DEPTH (4); six minutes on two idle cores.
set -euo pipefail

train=$(cd "$(dirname "$0")/.." && pwd)/trainer/train_l2t.sh
mkdir -p "$1" && cd "$1"
export XDG_STATE_HOME=$PWD/state DATA_WORKERS=0 EFFECTIVE_BATCH_SIZE=8
export L2T_STEPS=${STEPS:-300} L2T_SAVE_FREQ=0 L2T_EVAL_FREQ=0 L2T_LOG_FREQ=1
size=("model.width=${WIDTH:-64}" "model.depth=${DEPTH:-4}" run.resume=never)

[ -d data ] || { python -m ldlm_trainer prepare data && python -m ldlm_trainer export data files; }

bench() { # NAME [NAME=VALUE ...] [section.key=value ...]
    local name=$1 variables=() settings=() word
    for word in "${@:2}"; do
        case $word in *.*=*) settings+=("$word") ;; *) variables+=("$word") ;; esac
    done
    env "L2T_RUN_NAME=$name" ${variables[@]+"${variables[@]}"} ldlm-monitor bench --name "$name" -- \
        bash "$train" "${size[@]}" ${settings[@]+"${settings[@]}"} >"$name.out" 2>&1 || {
        tail -n 20 "$name.out" >&2
        exit 1
    }
}

compare() { # TITLE NAME...
    printf '\n== %s\n' "$1"
    ldlm-monitor compare "${@:2}" | tee -a compare.txt
}

one=(data.folder=files data.format=files model.attention=explicit optim.fused=false
    objective.freeze=false ddp.find_unused_parameters=true ddp.no_sync=false ddp.gradient_as_bucket_view=false)
two=("${one[@]}" data.folder=data data.format=shards data.workers=1)
three=("${two[@]}" model.checkpoint_every=1)
four=("${three[@]}" objective.freeze=true ddp.find_unused_parameters=false ddp.no_sync=true ddp.gradient_as_bucket_view=true)
five=("${four[@]}" optim.fused=true)
all=("${five[@]}" model.attention=sdpa)

bench phase1 "${one[@]}"
bench phase1-again "${one[@]}"
compare "1 safety, baseline: the same twice" phase1 phase1-again
bench phase2 "${two[@]}"
compare "2 data loading" phase1 phase2
bench phase3 "${three[@]}"
bench phase3-batch8 "${three[@]}" data.batch_size=8
compare "3 memory, and a larger batch" phase2 phase3 phase3-batch8
bench phase4-before NPROC_PER_NODE=2 "${three[@]}"
bench phase4 NPROC_PER_NODE=2 "${four[@]}"
compare "4 DDP, two processes" phase3 phase4-before phase4
bench phase5 "${five[@]}"
compare "5 optimizer, and freezing once" phase3 phase5
bench phase6-before L2T_MODE=unconditional "${five[@]}"
bench phase6 L2T_MODE=unconditional "${five[@]}" objective.latent_loss=cosine
compare "6 latent loss" phase6-before phase6
bench phase7 L2T_SAVE_FREQ=20 "${five[@]}" run.keep=3
compare "7 checkpoints" phase5 phase7
ls -d saved/phase7/step_*
bench phase8 "${all[@]}"
compare "8 all of it" phase1 phase8
NNODES=2 NODE_RANK=1 MASTER_PORT=29611 L2T_RUN_NAME=phase9 \
    bash "$train" "${size[@]}" "${all[@]}" >phase9-node1.out 2>&1 &
bench phase9 NNODES=2 MASTER_PORT=29611 "${all[@]}"
wait
compare "9 two nodes, both on this host" phase8 phase9
