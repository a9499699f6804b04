#!/bin/sh
# sh deploy/wheels.sh OUT: source distribution and wheel of ldlm-monitor and of each member, into OUT;
# of ldlm-monitor a second wheel, with the compiled part, for this platform where a compiler is. They require each other by version; PYTHON names an interpreter that has hatchling.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${1:?usage: sh deploy/wheels.sh OUT}"
out=$(cd "$1" && pwd)
python=${PYTHON:-$(pwd)/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in pyproject.toml ./*/pyproject.toml; do
    # The wheel is made of the sdist, so that one who builds from that gets the same.
    rm -rf "$work/packed" "$work/source"
    mkdir "$work/source"
    (cd "$(dirname "$file")" && LDLM_RELEASE=1 "$python" -m hatchling build --target sdist --directory "$work/packed")
    tar -xf "$work"/packed/*.tar.gz -C "$work/source" --strip-components 1
    cp "$work"/packed/*.tar.gz "$out"
    (cd "$work/source" && LDLM_NATIVE=0 "$python" -m hatchling build --target wheel --directory "$out")
    [ ! -d "$work/source/native" ] ||
        (cd "$work/source" && "$python" -m hatchling build --target wheel --directory "$out")
done
