#!/bin/sh
# Makes .venv in this folder and installs ldlm-monitor into it, with the versions of requirements/.
#   sh setup.sh          what every documented command needs
#   sh setup.sh dev      also what the tests and the site need
# PYTHON names another interpreter than python3. uv installs where it is present, pip otherwise.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
venv=.venv

fail() {
    echo "setup.sh: $1" >&2
    exit 2
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

apt_install() {
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
            >/dev/null
}

command -v "$python" >/dev/null 2>&1 || fail "no $python; install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version 2>&1) is too old; install Python 3.11 or newer, or set PYTHON"

# Debian's python3 comes without ensurepip: the package python3-venv brings it.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')
    can_install || fail "$python cannot make environments; as root: apt-get install $package"
    apt_install "$package" || fail "could not install $package; as root: apt-get install $package"
fi

install() {
    if command -v uv >/dev/null 2>&1; then
        # uv does not read pip's configuration, so a mirror may be known to pip alone.
        uv pip install --quiet --compile-bytecode --python "$venv/bin/python" "$@" && return
        echo "setup.sh: uv failed; trying pip" >&2
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}

[ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv"
locked=requirements/run.txt
[ "${1:-}" != dev ] || locked=requirements/dev.txt
# The lock is complete, so there is nothing to resolve; and nothing to install while it is the same.
if ! cmp -s "$locked" "$venv/${locked##*/}"; then
    install --no-deps --require-hashes --requirement "$locked"
    cp "$locked" "$venv/"
fi
# Python reads the path of an editable install as the locale says: with LC_ALL=C it would not start
# at all where the path is not ASCII. There the package is copied; run this script after a change.
editable=--editable
[ -z "$(pwd | LC_ALL=C tr -d '\n\040-\176')" ] || editable=
without=./trainer # it needs PyTorch
[ "${1:-}" != dev ] || without=
set -- --no-deps --no-build-isolation ${editable:---force-reinstall} .
for file in ./*/pyproject.toml; do
    [ "${file%/*}" = "$without" ] || set -- "$@" $editable "${file%/*}"
done
# The compiled part is optional: without a compiler Python does its work, slower.
if [ "${LDLM_NATIVE:-}" != 0 ]; then
    command -v "${CXX:-c++}" >/dev/null 2>&1 || [ -n "${CXX:-}" ] || ! can_install ||
        apt_install g++ || true # hatch_build.py says what it lacks
    "$venv/bin/python" hatch_build.py
fi
install "$@"
# With PYTHONDONTWRITEBYTECODE an editable install would be compiled anew at each start: 0.2 s.
[ -z "$editable" ] || "$venv/bin/python" -m compileall -q ./*/ldlm_*
"$venv/bin/ldlm-monitor" --version
