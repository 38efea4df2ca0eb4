#!/usr/bin/env bash
# Compiles the lock: every version exact, every file by hash. Only the package index itself is asked, so that
# the hashes are the index's own and no mirror, cache or path of the machine that ran this gets in.
# Usage: requirements/lock.sh PATH-OF-pip-compile
set -euo pipefail
cd "$(dirname "$0")/.."
unset PIP_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CONSTRAINT
export PIP_CONFIG_FILE=/dev/null

compile() {
  "$1" --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-options \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --annotation-style=line "${@:2}"
}

compile "$1" --output-file requirements/dev.txt --constraint requirements/constraints.in --extra demo --extra lab --extra replay --extra test --extra dev pyproject.toml
# What a user installs: the developers' versions and nothing else. demo.txt has the tour's data and tools too.
compile "$1" --output-file requirements/run.txt --constraint requirements/dev.txt pyproject.toml
compile "$1" --output-file requirements/demo.txt --constraint requirements/dev.txt --extra demo pyproject.toml
# What an image with JupyterLab holds.
compile "$1" --output-file requirements/lab.txt --constraint requirements/dev.txt --extra lab pyproject.toml
compile "$1" --output-file requirements/conformance.txt --constraint requirements/constraints.in requirements/conformance.in pyproject.toml
compile "$1" --output-file requirements/tithon.txt requirements/tithon.in

if grep -nE '://|^-|/[a-z]+/' requirements/*.txt; then
  echo "a host, option or path got into the lock" >&2
  exit 1
fi
