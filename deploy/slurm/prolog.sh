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

# Which node of the job this is: prologs are not told.
SLURM_NODEID=0
for name in $(scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null); do
    [ "$name" != "$SLURMD_NODENAME" ] || break
    SLURM_NODEID=$((SLURM_NODEID + 1))
done
export SLURM_NODEID

here=$(dirname "$(readlink -f "$0")")
install -d -m 0755 "$RUN_DIR" "$LOG_DIR"
STATE_DIR=$RUN_DIR/state-$SLURM_JOB_ID
install -d -m 0700 -o "$SLURM_JOB_UID" -g "$SLURM_JOB_GID" "$STATE_DIR" || exit 0
export STATE_DIR
# All streams are elsewhere, or slurmd would wait for the monitor's end.
setsid setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --init-groups \
    --inh-caps=-all --no-new-privs sh "$here/monitor-node.sh" \
    </dev/null >>"$LOG_DIR/job-$SLURM_JOB_ID.log" 2>&1 &
echo $! >"$RUN_DIR/job-$SLURM_JOB_ID.pid"
exit 0
