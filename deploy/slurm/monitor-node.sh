#!/bin/sh
# The monitor of one node of a Slurm job, in the foreground. prolog.sh starts it as the job's
# user; without a prolog, the job script does (job.sbatch). It reads what this node's ranks write,
# so that no series is exported by two nodes, and says in FILE_SD_DIR where Prometheus finds it.
set -eu
: "${SLURM_JOB_ID:?is set by Slurm}"
node=${SLURMD_NODENAME:-$(hostname -s)}
index=${SLURM_NODEID:-0}
ranks=${RANKS_PER_NODE:-8}
logs=${LOGS:-train_logs/$SLURM_JOB_ID}

cd "${SLURM_JOB_WORK_DIR:-${SLURM_SUBMIT_DIR:-.}}"
# The log of this node, and the callback's rows of its ranks: not those of others.
LDLM_FILES="$logs/*node$index.log"
rank=$((index * ranks))
while [ "$rank" -lt $(((index + 1) * ranks)) ]; do
    LDLM_FILES="$LDLM_FILES:$logs/health_rank$rank.jsonl"
    rank=$((rank + 1))
done
export LDLM_FILES LDLM_COMPANIONS=false LDLM_RUN="job-$SLURM_JOB_ID"
export LDLM_EXTERNAL_LABELS="cluster=${SLURM_CLUSTER_NAME:-slurm},job_id=$SLURM_JOB_ID,node=$node"
[ -z "${FILE_SD_DIR:-}" ] || export LDLM_FILE_SD="$FILE_SD_DIR/$SLURM_JOB_ID-$node.json"
export LDLM_STATE_DIR="${STATE_DIR:-${TMPDIR:-/tmp}}/ldlm-monitor-$SLURM_JOB_ID-$node"
exec nice "${MONITOR:-/opt/ldlm-monitor/bin/ldlm-monitor}" --headless --log-format json \
    --listen "${LISTEN:-0.0.0.0:0}"
