#!/bin/sh
# The static checks, all of them: it fails when one does, after the last one ran.
cd "$(dirname "$0")/.." || exit 2
failed=
check() {
    echo "== $*"
    ".venv/bin/$@" || failed="$failed $1"
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
