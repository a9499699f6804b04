#!/bin/sh
# Writes the lock: names, versions and the hashes of every platform, in pip's own form.
#   sh requirements/lock.sh             keeps the versions that still fit pyproject.toml
#   sh requirements/lock.sh --upgrade   takes the newest ones
# Needs uv; its index may be set by UV_DEFAULT_INDEX, and does not appear in the lock.
set -eu
cd "$(dirname "$0")/.."

# What the members need is locked, they themselves are installed from their folders.
members=
for file in */pyproject.toml; do
    members="$members --no-emit-package ldlm-${file%/pyproject.toml}"
done

lock() {
    output=requirements/$1.txt
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-annotate --no-header --output-file "$output" $members "$@"
}

lock run "$@" pyproject.toml --extra all --group build
lock dev "$@" pyproject.toml --extra all --group build --group docs --group test \
    --constraint requirements/run.txt
# Which build of torch fits depends on the machine, so it is installed apart.
echo torch | lock frameworks "$@" --group frameworks --excludes /dev/stdin \
    --constraint requirements/dev.txt
