#!/bin/sh
# sh deploy/release.sh VERSION: version, changelog, tests; then sdists, wheels, SBOM and image in dist/.
# It commits, tags and publishes nothing; its last lines say how. A tree with changes is refused.
#   RELEASE_TESTS=:   leaves the tests out, where they have just passed
set -eu
cd "$(dirname "$0")/.."
version=${1:?usage: sh deploy/release.sh VERSION}

fail() {
    echo "release.sh: $1" >&2
    exit 2
}

try() { # The two things that a user does first, with the command $1.
    [ "$("$1" --version)" = "ldlm-monitor $version, with the compiled part" ] ||
        fail "$1 is of another version, or not compiled"
    "$1" --once --fail-on never examples/train_logs/*.log >"$work/report.txt"
    grep -q CRITICAL "$work/report.txt" || fail "$1 finds nothing in the examples"
}

[ -z "$(git status --porcelain)" ] || fail "commit or stash your changes first"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist
python3 deploy/new_version.py "$version" "$(date -u +%F)"
sh setup.sh dev
${RELEASE_TESTS:-sh tests/run.sh}

sh deploy/wheels.sh dist
python3 -m venv "$work/callback"
"$work/callback/bin/pip" install --quiet --no-index --find-links dist "ldlm-callback==$version"
"$work/callback/bin/pip" check
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --require-hashes --no-deps --requirement requirements/run.txt
# What they require is all in the lock, or among them.
"$work/venv/bin/pip" install --quiet --no-index --find-links dist "ldlm-monitor[all]==$version"
"$work/venv/bin/pip" check
try "$work/venv/bin/ldlm-monitor"

python3 -m venv "$work/sbom"
"$work/sbom/bin/pip" install --quiet cyclonedx-bom
"$work/sbom/bin/cyclonedx-py" environment --output-reproducible --output-file "dist/sbom.cdx.json" "$work/venv"
grep -q '"name": "hyperscan"' dist/sbom.cdx.json || fail "the SBOM lacks the dependencies"

if docker=$(command -v docker || command -v podman) && "$docker" info >"$work/info.txt" 2>&1; then
    "$docker" build --quiet --file deploy/Dockerfile --tag "ldlm-monitor:$version" .
    [ "$("$docker" run --rm "ldlm-monitor:$version" --version)" = "ldlm-monitor $version, with the compiled part" ] ||
        fail "the image is of another version, or not compiled"
    "$docker" save "ldlm-monitor:$version" | gzip >"dist/ldlm-monitor-$version.image.tar.gz"
else
    echo "release.sh: neither docker nor podman runs here: no image" >&2
fi
(cd dist && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
cat dist/SHA256SUMS
echo "now: git commit -am 'Release $version' && git tag v$version && git push --tags; publish dist/"
