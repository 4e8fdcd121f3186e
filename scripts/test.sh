#!/usr/bin/env bash
# Runs the suites named, or all of them, prints the time of each, and fails at the end if any failed.
set -u
cd "$(dirname "$0")/.." || exit
. scripts/lib.sh

all=(lint types rooms unit postgres simulation templates e2e faults)
bin=$PWD/.venv/bin

suite_lint() {
    local code=0
    "$bin/ruff" check . || code=1
    "$bin/ruff" format --check . || code=1
    return "$code"
}
suite_types() { "$bin/mypy"; }
suite_rooms() { "$bin/lint-imports"; }
# Tests wait, for processes and for deadlines: three or four workers keep two cores busy. With worksteal a worker takes
# over from another only when it has nothing left, so that what a module starts is started once.
suite_unit() {
    wait # for what is brought in the background
    run_pytest unit -n 3 --dist worksteal tests --ignore=tests/e2e --ignore=tests/faults --ignore=tests/simulation --ignore=tests/templates/nanogpt --ignore=tests/analysis/oracle
}
suite_postgres() { run_pytest postgres -n 3 --dist worksteal --database postgres tests/control tests/core/lifecycle tests/hostile/test_nul.py tests/hostile/test_agents.py --ignore=tests/control/db; }
suite_templates() { run_pytest templates -n 2 --dist worksteal tests/templates/nanogpt tests/analysis/oracle; }
suite_e2e() { run_pytest e2e -n 4 --dist worksteal tests/e2e; }
suite_faults() { run_pytest faults -n 3 --dist loadfile tests/faults; }
# The same every time: nothing here gets a second try.
suite_simulation() { "$bin/python" -m pytest -q -n 2 tests/simulation && "$bin/crucible-sim" --seeds 200 --processes 2; }

# Runs pytest for a suite and keeps what it skipped for the summary. What failed is run once more, alone: a test that
# passes then ran into a busy machine, and the summary says so; one that fails again fails the suite.
run_pytest() {
    local name=$1 code log=.pytest_cache/$1.txt color=no
    shift
    [ -t 1 ] && color=yes
    "$bin/python" -m pytest -q -rfEs --durations=15 --durations-min=5 --color="$color" -o cache_dir=".pytest_cache/$name" "$@" | tee -i "$log"
    code=${PIPESTATUS[0]}
    note_skipped "$name" "$log"
    [ "$code" = 1 ] || return "$code"
    printf '\n== %s: what failed, once more\n' "$name"
    "$bin/python" -m pytest -q -o cache_dir=".pytest_cache/$name" "$@" -n 0 --last-failed --last-failed-no-failures=none || return 1
    again=", some only at the second try (see above)"
}

# Tests of the Azure store run Azurite, which comes by npm.
bring_azurite() {
    [ -x .venv/node_modules/.bin/azurite ] && return
    command -v npm >/dev/null || apt_install npm
    timeout 180 npm install --silent --no-audit --no-fund --ignore-scripts --prefix .venv azurite@3.35.0 >&2 ||
        say "missing: azurite; tests that need it will say so."
}

# note_skipped SUITE FILE: from what pytest wrote, each reason with its number of tests.
note_skipped() {
    local line
    while read -r line; do
        skipped+=("$(printf '%-9s %s' "$1" "$line")")
    done < <(sed -n -e $'s/\x1b\\[[0-9;]*m//g' -e 's/^SKIPPED //p' "$2")
}

# Rewrites the tests' asserts while the first suites leave a core idle, so that not every worker has to do it.
warm_up() { "$bin/python" -m pytest -q --collect-only -p no:cacheprovider tests >/dev/null 2>&1; }

# Sets `processor`: its seconds that everything we waited for has used. What went on without us is not in it.
note_processor() {
    times >.pytest_cache/times # not in a subshell, which would have used nothing
    processor=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' .pytest_cache/times)
}

run_suite() {
    local name=$1 started=$SECONDS used code outcome again=
    printf '\n== %s\n' "$name"
    note_processor
    used=$processor
    "suite_$name"
    code=$?
    [ "$code" = 130 ] && exit 130
    outcome=$([ "$code" = 0 ] && echo "passed$again" || echo "FAILED ($code)")
    note_processor
    note_result "$name" $((SECONDS - started)) $((processor - used)) "$outcome"
    [ "$code" = 0 ] || failed=1
}

note_result() { results+=("$(printf '%-9s %5d s %5d s of processor  %s' "$@")"); }

suites=("$@")
[ $# = 0 ] && suites=("${all[@]}")
for name in "${suites[@]}"; do
    declare -F "suite_$name" >/dev/null || die "no suite is named $name" "The suites are: ${all[*]}"
done

trap 'exit 130' INT
# Without bytecode every worker of every suite compiles the tests, and what they start, from the beginning.
unset VIRTUAL_ENV CRUCIBLE_HOME CRUCIBLE_SERVER PYTHONDONTWRITEBYTECODE
mkdir -p .pytest_cache
results=()
skipped=()
failed=0

scripts/setup.sh dev || exit
case " ${suites[*]} " in *" unit "* | *" postgres "* | *" e2e "* | *" faults "*) bring_system_packages ;; esac
case " ${suites[*]} " in *" unit "*) bring_azurite & ;; esac
[ $# = 0 ] && warm_up &

for name in "${suites[@]}"; do
    run_suite "$name"
done

note_processor
note_result all "$SECONDS" "$processor" "$([ "$failed" = 0 ] && echo passed || echo FAILED)"
printf '\n== skipped\n'
printf '%s\n' "${skipped[@]:-nothing}"
printf '\n== time of each suite\n'
printf '%s\n' "${results[@]}"
exit "$failed"
