#!/usr/bin/env bash
# Removes what the other scripts and the tools made. A server of the demo that is still up, and its simulated cloud, go
# down first.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -d .demo ] && [ -x .venv/bin/crucible ]; then
    CRUCIBLE_HOME="$PWD/.demo" .venv/bin/crucible down --yes >/dev/null 2>&1 || true
    CRUCIBLE_HOME="$PWD/.demo" .venv/bin/python scripts/demo_provider.py close >/dev/null 2>&1 || true
fi
rm -rf .venv .demo .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
find src tests benchmarks examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
