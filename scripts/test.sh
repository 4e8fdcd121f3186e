#!/usr/bin/env bash
# Sets up ./.venv and what the tests need, runs the suites named (default: all) one after the other, prints the time of
# each, and fails at the end if any failed.
set -u
cd "$(dirname "$0")/.." || exit
. scripts/lib.sh

all=(lint types rooms unit agent hostile stores postgres simulation templates e2e ssh faults quiet)
bin=$PWD/.venv/bin
run=.pytest_cache/run

suite_lint() {
    local code=0
    "$bin/ruff" check . || code=1
    "$bin/ruff" format --check . || code=1
    return "$code"
}
suite_types() { "$bin/mypy"; }
suite_rooms() { "$bin/lint-imports"; }
suite_unit() { run_pytest -n 2 -m "unit and not quiet" tests; }
suite_agent() { run_pytest -n 2 -m "agent and not quiet" tests; }
suite_hostile() { run_pytest -n 2 -m "hostile and not quiet" tests; }
# By file, so that each file's servers are started once.
suite_stores() { run_pytest -n 2 -m stores --dist loadfile tests; }
suite_postgres() {
    run_pytest -n 2 -m "not quiet" --database postgres --ignore=tests/control/db tests/control tests/hostile/test_nul.py tests/hostile/test_agents.py
}
suite_simulation() {
    run_pytest -n 2 -m simulation tests && "$bin/crucible-sim" --seeds 200 --from "$(first_seed)" --processes 2
}
# The first of the 200 seeds follows from the commit, so that every change meets seeds which nobody has run before.
first_seed() { echo $((16#$(git rev-parse HEAD | cut -c 1-8))); }
suite_templates() { run_pytest -n 2 -m templates tests; }
# These wait most of their time, for processes and for deadlines: more workers than cores.
suite_e2e() { run_pytest -n 4 -m e2e tests; }
suite_faults() { run_pytest -n 4 -m faults --dist loadfile tests; }
suite_ssh() { run_pytest -n 2 -m ssh tests; }
# One at a time, and nothing beside it.
suite_quiet() { run_pytest -m quiet tests; }

run_pytest() { "$bin/python" -m pytest -q -rfEs --dist worksteal --durations=15 --durations-min=5 "$@"; }

# bring SUITE...: installs what they need besides ./.venv, side by side.
bring() {
    case " $* " in *" stores "*) bring_azurite & ;; esac
    case " $* " in *" templates "* | *" ssh "* | *" faults "*) bring_torch & ;; esac
    case " $* " in *" unit "* | *" quiet "* | *" agent "* | *" hostile "* | *" postgres "* | *" e2e "* | *" ssh "* | *" faults "*) bring_system_packages & ;; esac
    wait
}

# Tests of the Azure store run Azurite, which comes by npm.
bring_azurite() {
    [ -x .venv/node_modules/.bin/azurite ] && return
    command -v npm >/dev/null || apt_install npm
    timeout 600 npm install --silent --no-audit --no-fund --ignore-scripts --prefix .venv azurite@3.35.0 >&2 ||
        say "missing: azurite; tests that need it will say so."
}

# The templates train with torch in an environment of their own.
bring_torch() {
    "$bin/python" -m tests.templates.torch_environment >&2 || say "missing: torch; tests that need it will say so."
}

run_suite() {
    local name=$1 started=$SECONDS outcome=passed
    printf '\n== %s\n' "$name"
    "suite_$name" 2>&1 | tee "$run/$name.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1 outcome=FAILED
    results+=("$(printf '%-10s %5d s  %s' "$name" $((SECONDS - started)) "$outcome")")
}

# skipped_by SUITE...: prints each reason that pytest gave, with its number of tests.
skipped_by() {
    local name
    for name in "$@"; do
        sed -n -e $'s/\x1b\\[[0-9;]*m//g' -e "s/^SKIPPED /$(printf '%-10s' "$name") /p" "$run/$name.txt"
    done
}

suites=("$@")
[ $# = 0 ] && suites=("${all[@]}")
for name in "${suites[@]}"; do
    declare -F "suite_$name" >/dev/null || die "no suite is named $name" "The suites are: ${all[*]}"
done

trap 'exit 130' INT TERM
unset VIRTUAL_ENV CRUCIBLE_HOME CRUCIBLE_SERVER PYTHONDONTWRITEBYTECODE
rm -rf "$run"
mkdir -p "$run"
results=()
failed=0

scripts/setup.sh dev || exit
bring "${suites[@]}"
results+=("$(printf '%-10s %5d s  with downloads' setup "$SECONDS")")
for name in "${suites[@]}"; do run_suite "$name"; done

skipped=$(skipped_by "${suites[@]}")
printf '\n== skipped\n%s\n' "${skipped:-nothing}"
printf '\n== time of each suite\n'
printf '%s\n' "${results[@]}"
printf '%-10s %5d s  %s\n' all "$SECONDS" "$([ "$failed" = 0 ] && echo passed || echo FAILED)"
exit "$failed"
