#!/usr/bin/env bash
# Runs the rows of docs/reliability.md named, or all of them, at full size, and writes down what they measured. Takes
# hours; `scripts/prove.sh --list` says what there is.
set -u
cd "$(dirname "$0")/.." || exit
. scripts/lib.sh

unset VIRTUAL_ENV CRUCIBLE_HOME CRUCIBLE_SERVER
scripts/setup.sh dev || exit
bring_system_packages
exec .venv/bin/python -m benchmarks.prove "$@"
