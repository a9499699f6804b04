#!/bin/sh
# The one test command: installs what the tests need, then runs every check.
# Arguments go to pytest. It fails when any check does, after all of them ran.
set -eu
cd "$(dirname "$0")/.."

as_root=
[ "$(id -u)" -eq 0 ] || as_root="sudo -n"
if ! { command -v promtool && command -v amtool; } >/dev/null 2>&1 &&
    command -v apt-get >/dev/null 2>&1; then
    if $as_root true 2>/dev/null; then
        $as_root apt-get update -qq || true
        # The programs are wanted; the service that comes with them must not start.
        $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager \
            >/dev/null ||
            echo "tests/run.sh: no prometheus; tests that need it are skipped" >&2
    else
        echo "tests/run.sh: as root: apt-get install prometheus prometheus-alertmanager" >&2
    fi
fi
sh setup.sh dev

bin=.venv/bin
"$bin/pip" install --quiet 'torch==2.13.0' 'numpy>=1.26' ||
    echo "tests/run.sh: no PyTorch; tests of the trainer are skipped" >&2
"$bin/pip" install --quiet transformers lightning accelerate nvidia-ml-py ||
    echo "tests/run.sh: not all frameworks; tests of their adapters are skipped" >&2

failed=
check() {
    echo "== $*"
    "$bin/$@" || failed="$failed $1"
}
check ruff format --check .
check ruff check .
check mypy
check lint-imports
if [ $# -eq 0 ]; then
    # Tests that start a daemon, a Prometheus or a training have the machine to themselves.
    check pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
        -m "not live and not long"
    check pytest -m "live and not long"
else
    check pytest "$@"
fi
[ -z "$failed" ] || {
    echo "tests/run.sh: failed:$failed" >&2
    exit 1
}
