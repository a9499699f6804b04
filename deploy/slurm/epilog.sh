#!/bin/sh
# Epilog of slurm.conf: ends the monitor that prolog.sh started, once it has sent how the job ended.
# The exit status stays 0: any other drains the node.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
settings=${LDLM_SLURM_SETTINGS:-/etc/ldlm-monitor/slurm.env}
RUN_DIR=/run/ldlm-monitor
# shellcheck source=/dev/null
[ ! -r "$settings" ] || . "$settings"
pid_file=$RUN_DIR/job-$SLURM_JOB_ID-$SLURMD_NODENAME.pid
[ -r "$pid_file" ] || exit 0
pid=$(cat "$pid_file")

# A process of this job's monitor, and no other that got its number since.
is_ours() {
    { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | grep -qx "LDLM_RUN=job-$SLURM_JOB_ID"
}

# The end of a job is read and sent within seconds.
waited=0
while is_ours && [ "$waited" -lt "${LINGER_SECONDS:-5}" ]; do
    sleep 1
    waited=$((waited + 1))
done
is_ours && kill "$pid"
waited=0
while is_ours && [ "$waited" -lt 10 ]; do
    sleep 1
    waited=$((waited + 1))
done
is_ours && kill -9 "$pid"
rm -rf "$pid_file" "$RUN_DIR/state-$SLURM_JOB_ID-$SLURMD_NODENAME"
[ -z "${FILE_SD_DIR:-}" ] || rm -f "$FILE_SD_DIR/$SLURM_JOB_ID-$SLURMD_NODENAME.json"
exit 0
