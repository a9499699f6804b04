#!/bin/bash
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1  # one launcher for each node
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=40
#SBATCH --time 1-00:00:00
# Launches put together from variables, as in the scripts of large trainings.
# !! too-many-workers: --num-workers 48
# !! ddp-timeout-days: --distributed-timeout-minutes 3600
# !! exit-code-hidden: bash -c '$LAUNCHER
# !! exit-code-hidden: bash -x -c "${INNER}"
# !! too-many-workers: --num-workers 41"
# !! nccl-monitoring-off: ENABLE_MONITORING=0
# !! nccl-blocking-wait: -x TORCH_NCCL_BLOCKING_WAIT=1
MICRO_BATCH_SIZE=4 # fits
if [[ ${EXIT_EARLY} == 1 ]]; then EXIT_OPTS="--exit-interval 2"
else EXIT_OPTS=""
fi
GPT_ARGS=" \
    --micro-batch-size $MICRO_BATCH_SIZE \
    --num-workers 48 \
    $EXIT_OPTS \
    --distributed-timeout-minutes 3600 \
    "
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "zero_optimization": {"stage": $ZERO_STAGE},
  "fp16": {
    "enabled": true,
    "loss_scale": 1024
  }
}
EOT
export LAUNCHER="python -u -m torch.distributed.launch \
    --nproc_per_node 4 \
    --master_addr `scontrol show hostnames | head -1` \
    "
export CMD="`pwd`/pretrain_gpt.py $GPT_ARGS"
clear; srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee gpt.out
PRETRAIN_ARGS=(
    --bf16
    --no-check-for-nan-in-loss-and-grad # measured without
)
if [ "${PROFILE}" = 1 ]; then
    PRETRAIN_ARGS=("${PRETRAIN_ARGS[@]}" --profile)
fi
INNER="
cd ${MEGATRON_PATH};
git rev-parse HEAD;
${PROFILE_CMD} python ${MEGATRON_PATH}/pretrain_gpt.py ${PRETRAIN_ARGS[@]}"
sbatch <<EOF
#!/bin/bash
srun -l bash -x -c "${INNER}" 2>&1 | tee ${LOGS}/\${SLURM_JOB_ID}.log
EOF
options="--bf16 \
    --num-workers 41"
if [ "${CHECKPOINT}" = "true" ]; then
options="${options} \
    --checkpoint-activations"
fi
run_cmd="deepspeed ${DIR}/pretrain_gpt.py ${options} --logging_nan_inf_filter true &> ${NAME}.log"
echo ${run_cmd}
eval ${run_cmd}
TORCH_NCCL_ENABLE_MONITORING=0 \
    "${TORCHRUN}" --nproc_per_node="${N_GPUS}" train.py
srun mpirun -np 4 -x TORCH_NCCL_BLOCKING_WAIT=1 python train.py
