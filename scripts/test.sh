#!/usr/bin/env bash
# Runs the suites named, or all of them, prints the time of each, and fails at the end if any failed.
set -u
cd "$(dirname "$0")/.." || exit
. scripts/lib.sh

all=(lint types rooms unit templates e2e faults)
bin=$PWD/.venv/bin

suite_lint() {
    local code=0
    "$bin/ruff" check . || code=1
    "$bin/ruff" format --check . || code=1
    return "$code"
}
suite_types() { "$bin/mypy"; }
suite_rooms() { "$bin/lint-imports"; }
suite_unit() { "$bin/python" -m pytest tests --ignore=tests/e2e --ignore=tests/faults --ignore=tests/templates/nanogpt -q -n 2; }
suite_templates() { "$bin/python" -m pytest tests/templates/nanogpt -q; }
suite_e2e() { "$bin/python" -m pytest tests/e2e -q; }
suite_faults() { "$bin/python" -m pytest tests/faults -q; }

# Tests read system calls with strace, make repositories with git and run a PostgreSQL server of their own.
bring_system_packages() {
    local tool missing=()
    for tool in git strace; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
    [ ${#missing[@]} = 0 ] && return
    apt_install "${missing[@]}" || say "missing: ${missing[*]}; tests that need them will say so. $(how_to_install "${missing[@]}")"
}

run_suite() {
    local name=$1 started=$SECONDS code
    printf '\n== %s\n' "$name"
    "suite_$name"
    code=$?
    [ "$code" = 130 ] && exit 130
    results+=("$(printf '%-9s %5d s  %s' "$name" $((SECONDS - started)) "$([ "$code" = 0 ] && echo passed || echo "FAILED ($code)")")")
    [ "$code" = 0 ] || failed=1
}

suites=("$@")
[ $# = 0 ] && suites=("${all[@]}")
for name in "${suites[@]}"; do
    declare -F "suite_$name" >/dev/null || die "no suite is named $name" "The suites are: ${all[*]}"
done

trap 'exit 130' INT
unset VIRTUAL_ENV CRUCIBLE_HOME CRUCIBLE_SERVER
results=()
failed=0

scripts/setup.sh dev || exit
case " ${suites[*]} " in *" unit "* | *" e2e "* | *" faults "*) bring_system_packages ;; esac

for name in "${suites[@]}"; do
    run_suite "$name"
done

printf '\n== time of each suite\n'
printf '%s\n' "${results[@]}"
printf '%-9s %5d s  %s\n' all "$SECONDS" "$([ "$failed" = 0 ] && echo passed || echo FAILED)"
exit "$failed"
