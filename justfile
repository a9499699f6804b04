# `just` lists what there is; CONTRIBUTING.md has the plain commands.

_list:
    @just --list

# Make .venv with everything that a documented command needs
setup:
    sh setup.sh

# Every static check, and every test but the long ones
test *arguments:
    sh tests/run.sh {{ arguments }}

# What a change needs since it left main, or another commit: its houses' tests and those around them
changed *base:
    "${PYTHON:-python3}" tests/changed.py {{ base }}

# The static checks alone
lint:
    sh setup.sh dev
    sh tests/static.sh

# All benchmarks, as a table (--quick: in little)
bench *arguments:
    sh setup.sh dev
    .venv/bin/python benchmarks/run.py {{ arguments }}

# On a machine with a GPU: what only one can show, and what the callback and the trainer cost there
gpu:
    sh benchmarks/gpu/run.sh

# Make the site, and fail on a link that leads nowhere
docs:
    sh setup.sh dev
    .venv/bin/mkdocs build --strict

# Make a release in dist/: version, changelog, sdist, wheel, SBOM and image, each tried
release version:
    sh deploy/release.sh {{ version }}

# Write the lock anew with the newest versions, by uv (tried: 0.13)
lock *arguments="--upgrade":
    sh requirements/lock.sh {{ arguments }}

# The long tests, all examples of properties, five minutes of soak, healthy runs, mutants for the rest of two hours
nightly:
    #!/bin/sh
    set -eu
    end=$(($(date +%s) + 7200))
    failed=
    HYPOTHESIS_PROFILE=nightly timeout 5400 \
        sh tests/run.sh -n 4 --dist worksteal -m "long or not long" || failed=tests
    .venv/bin/python benchmarks/soak.py --minutes 5 || failed=soak
    .venv/bin/python benchmarks/healthy_runs.py --quick --runs 20 || failed=healthy
    .venv/bin/pip install --quiet cosmic-ray coverage
    .venv/bin/python tests/mutation/sample.py --minutes $(((end - $(date +%s)) / 60))
    [ -z "$failed" ]
