#!/bin/sh
# The static checks, all of them: it fails when one does, after the last one ran.
cd "$(dirname "$0")/.." || exit 2
failed=
# A shell heeds a signal while it waits for a check, not while it runs one.
trap 'kill "$!" 2>/dev/null; exit 143' INT TERM
check() {
    echo "== $*"
    ".venv/bin/$@" &
    wait "$!" || failed="$failed $1"
}
check ruff format --check .
check ruff check .
check mypy
# It runs where the training does.
check mypy --python-version 3.10 --package ldlm_callback
check lint-imports
[ -z "$failed" ] || {
    echo "tests/static.sh: failed:$failed" >&2
    exit 1
}
