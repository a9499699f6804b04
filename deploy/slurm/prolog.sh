#!/bin/sh
# Prolog of slurm.conf: starts the monitor of this node beside the job, as the job's user.
# Whatever goes wrong is written down, and the exit status stays 0: any other drains the node.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
settings=${LDLM_SLURM_SETTINGS:-/etc/ldlm-monitor/slurm.env}
RUN_DIR=/run/ldlm-monitor
LOG_DIR=/var/log/ldlm-monitor
set -a
# shellcheck source=/dev/null
[ ! -r "$settings" ] || . "$settings"
set +a
[ "$SLURM_JOB_UID" != 0 ] || [ "${WATCH_ROOT:-no}" = yes ] || exit 0

# Which node of the job this is: prologs have no variable for it. By this name they know the list of nodes,
# which jobs have as SLURM_JOB_NODELIST.
SLURM_NODEID=0
for name in $(scontrol show hostnames "${SLURM_NODELIST:-$SLURM_JOB_NODELIST}" 2>/dev/null); do
    [ "$name" != "$SLURMD_NODENAME" ] || break
    SLURM_NODEID=$((SLURM_NODEID + 1))
done
export SLURM_NODEID

here=$(dirname "$(readlink -f "$0")")
install -d -m 0755 "$RUN_DIR" "$LOG_DIR"
STATE_DIR=$RUN_DIR/state-$SLURM_JOB_ID-$SLURMD_NODENAME
install -d -m 0700 -o "$SLURM_JOB_UID" -g "$SLURM_JOB_GID" "$STATE_DIR" || exit 0
export STATE_DIR
pid_file=$RUN_DIR/job-$SLURM_JOB_ID-$SLURMD_NODENAME.pid
rm -f "$pid_file"
# All streams are elsewhere, or slurmd would wait for the monitor's end.
# shellcheck disable=SC2016
setsid sh -c 'echo $$ >"$1" && shift && exec "$@"' monitor "$pid_file" \
    setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --init-groups \
    --inh-caps=-all --no-new-privs sh "$here/monitor-node.sh" \
    </dev/null >>"$LOG_DIR/job-$SLURM_JOB_ID-$SLURMD_NODENAME.log" 2>&1 &
# slurmd kills what is in the prolog's process group at its end: the monitor must have left it.
waited=0
while [ ! -s "$pid_file" ] && [ "$waited" -lt 50 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
exit 0
