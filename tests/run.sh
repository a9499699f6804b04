#!/bin/sh
# The one test command: installs what the tests need, then runs every check.
# Arguments go to pytest. It fails when any check does, after all of them ran.
set -eu
cd "$(dirname "$0")/.."

static=$(mktemp)
jobs=
# What runs in the background ignores Ctrl-C, and would outlive a command that fails here.
trap 'kill $jobs 2>/dev/null || true; rm -f "$static"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

as_root=
[ "$(id -u)" -eq 0 ] || as_root="sudo -n"
install_prometheus() {
    $as_root apt-get update -qq || true
    # The programs are wanted; the service that comes with them must not start.
    $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager \
        >/dev/null ||
        echo "tests/run.sh: no prometheus; tests that need it are skipped" >&2
}
if ! { command -v promtool && command -v amtool; } >/dev/null 2>&1 &&
    command -v apt-get >/dev/null 2>&1; then
    if $as_root true 2>/dev/null; then
        install_prometheus # before setup.sh, which may call apt-get too
    else
        echo "tests/run.sh: as root: apt-get install prometheus prometheus-alertmanager" >&2
    fi
fi
sh setup.sh dev

bin=.venv/bin
# Modules are compiled when they are first imported, since most of torch's never are; so what was
# compiled has to be kept.
unset PYTHONDONTWRITEBYTECODE
# All of pytest's processes would rewrite the asserts of all tests for themselves. Here one does,
# while pip keeps the other core busy.
"$bin/pytest" --collect-only -q >/dev/null 2>&1 &
rewriting=$!
jobs=$rewriting
pip_install() {
    "$bin/pip" install --quiet --no-compile --disable-pip-version-check "$@"
}
# The first torch that pip finds, so that a machine without a GPU may have a build without CUDA.
torch=torch==2.13.0 locked=requirements/frameworks.txt
wanted="$torch $(cksum <"$locked")"
if [ "$wanted" != "$(cat .venv/frameworks 2>/dev/null)" ]; then
    if pip_install --no-deps --require-hashes --requirement "$locked" && pip_install "$torch"; then
        echo "$wanted" >.venv/frameworks
    else
        echo "tests/run.sh: no PyTorch or not all frameworks; tests that need them are skipped" >&2
    fi
fi

sh tests/static.sh >"$static" 2>&1 &
checks=$!
jobs="$jobs $checks"

wait "$rewriting" || true # what it says, the tests say again
failed=
if [ $# -eq 0 ]; then
    # More than cores: many tests wait for a daemon, a training or a timeout.
    set -- -n 4 --dist worksteal
fi
"$bin/pytest" "$@" || failed="$failed pytest"
wait "$checks" || failed="$failed static-checks"
cat "$static"
[ -z "$failed" ] || {
    echo "tests/run.sh: failed:$failed" >&2
    exit 1
}
