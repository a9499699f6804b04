#!/bin/bash
# Options and settings that reach the training by way of a variable, a quoted text or a file.
# !! nccl-timeout-unread: NCCL_TIMEOUT=3
# !! nccl-transport-off: NCCL_P2P_DISABLE=1 torchrun
# !! nccl-debug-noise: export NCCL_DEBUG=INFO
# !! exit-code-hidden: tee /logs/x.log
# !! ddp-timeout-days: --ddp_timeout 180000000
# !! nccl-transport-off: NCCL_SHM_DISABLE=1
# !! nccl-monitoring-off: sudo env
# !! flight-recorder-off: --export ALL,TORCH_NCCL_DUMP_ON_TIMEOUT=0
set -o pipefail
ARGS="--batch-size 8 \
  --num_workers 64"
torchrun --nproc_per_node 2 train.py $ARGS
MORE=(--lr 1)
MORE+=(--num_workers 48)
if [ -e last.ckpt ]; then
  MORE+=(--resume last.ckpt)
fi
LAUNCH="torchrun --nproc_per_node 2"
$LAUNCH train.py "${MORE[@]}" > train.log 2>&1
REST="--lr 2"
REST="$REST --num_workers 40"
REST+=" --seed 1"
python train.py $REST
ssh node1 "cd /work && NCCL_TIMEOUT=3 torchrun train.py"
ssh -p 22 node2 NCCL_P2P_DISABLE=1 torchrun train.py
for host in a b; do
  ssh $host "export NCCL_DEBUG=INFO; cd \"$PWD\"
    torchrun train.py --name \"a b\" | tee /logs/x.log" &
done
CMD="NCCL_SHM_DISABLE=1 torchrun train.py --ddp_timeout 180000000"
eval "$CMD"
sbatch --wrap="NCCL_IB_DISABLE=1 torchrun train.py"
cat > job.sh <<JOB
#!/bin/bash
export CUDA_LAUNCH_BLOCKING=1
torchrun train.py | tee $LOG.txt
JOB
sbatch job.sh
sudo env TORCH_NCCL_ENABLE_MONITORING=0 torchrun train.py
srun --export ALL,TORCH_NCCL_DUMP_ON_TIMEOUT=0 python train.py
tmux new-session -d -s train "cd $PWD && env A=1 torchrun train.py 2>&1 | tee -a $LOG"
cat > late.sh <<'LATE'
torchrun train.py --auto-resume > late.log
LATE
nohup bash late.sh &
apptainer exec --env=NCCL_IB_HCA=mlx5_0,mlx5_1,NCCL_IB_TIMEOUT=12 image.sif python train.py
