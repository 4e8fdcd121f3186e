#!/usr/bin/env bash
# Runs the suites named one after the other, or all of them in lanes, prints the time of each, and fails at the end if
# any failed.
set -u
cd "$(dirname "$0")/.." || exit
. scripts/lib.sh

all=(lint types rooms unit agent hostile stores postgres simulation templates e2e faults)
bin=$PWD/.venv/bin
run=.pytest_cache/run
# Of a suite that computes and runs alone. Beside others it is one process: each worker has to find all tests for itself,
# and to tell another process of each.
workers=(-n 2 --dist worksteal)
on_disk=" stores faults " # what these show of stores and crashes, they show where people have them

suite_lint() {
    local code=0
    "$bin/ruff" check . || code=1
    "$bin/ruff" format --check . || code=1
    return "$code"
}
suite_types() { "$bin/mypy"; }
suite_rooms() { "$bin/lint-imports"; }
# Tests that wait, for processes and for deadlines, have four workers. With worksteal a worker takes over from another
# only when it has nothing left, so that what a module starts is started once.
suite_unit() {
    run_pytest unit "${workers[@]}" tests --ignore=tests/agent --ignore=tests/e2e --ignore=tests/faults --ignore=tests/hostile --ignore=tests/simulation --ignore=tests/storage --ignore=tests/templates/nanogpt --ignore=tests/analysis/oracle
}
suite_agent() { run_pytest agent "${workers[@]}" tests/agent; }
suite_hostile() { run_pytest hostile "${workers[@]}" tests/hostile; }
suite_stores() { run_pytest stores -n 2 --dist loadfile tests/storage; }
suite_postgres() {
    run_pytest postgres "${workers[@]}" --database postgres tests/control tests/hostile/test_nul.py tests/hostile/test_agents.py --ignore=tests/control/db
}
suite_templates() { run_pytest templates "${workers[@]}" tests/templates/nanogpt tests/analysis/oracle; }
suite_e2e() { run_pytest e2e -n 4 --dist worksteal tests/e2e; }
suite_faults() { run_pytest faults -n 4 --dist loadfile tests/faults; }
# The same every time: nothing here gets a second try.
suite_simulation() { "$bin/python" -m pytest -q "${workers[@]}" tests/simulation && "$bin/crucible-sim" --seeds 200 --processes 2; }

# run_pytest SUITE ARGUMENT...: keeps what it wrote, what failed and how to ask for it again.
run_pytest() {
    local name=$1
    shift
    printf '%q ' "$@" >"$run/$name.arguments"
    "$bin/python" -m pytest -q -rfEs --durations=15 --durations-min=5 --color="$color" -o cache_dir=".pytest_cache/$name" "$@" | tee -i "$run/$name.txt"
    return "${PIPESTATUS[0]}"
}

# bring SUITE...: what they need besides ./.venv, side by side. All of it is set-up, so that no suite waits for downloads.
bring() {
    set -m # each is a process group, which is ended as a whole
    [ $# = ${#all[@]} ] && bring_bytecode &
    case " $* " in *" stores "*) bring_azurite & ;; esac
    case " $* " in *" templates "* | *" faults "*) bring_torch & ;; esac
    case " $* " in *" unit "* | *" agent "* | *" hostile "* | *" postgres "* | *" e2e "* | *" faults "*) bring_system_packages & ;; esac
    set +m
    wait
}

# pytest compiles each test in its own way. Workers that begin together would all compile the same ones.
bring_bytecode() {
    compgen -G 'tests/__pycache__/conftest.*-pytest-*.pyc' >/dev/null || "$bin/python" -m pytest -q --collect-only >/dev/null 2>&1
}

# Tests of the Azure store run Azurite, which comes by npm.
bring_azurite() {
    [ -x .venv/node_modules/.bin/azurite ] && return
    command -v npm >/dev/null || apt_install npm
    install_azurite || say "missing: azurite; tests that need it will say so."
}

install_azurite() {
    timeout 600 npm install --silent --no-audit --no-fund --ignore-scripts --prefix .venv azurite@3.35.0 >&2
}

# The templates train with torch in an environment of their own.
bring_torch() {
    "$bin/python" -m tests.templates.torch_environment >&2 || say "missing: torch; tests that need it will say so."
}

# take_memory: sets `memory` to a new folder there for what tests write, where there is room and programs may be run. On
# a disk a tenth of their processor time goes into making thousands of files and removing them again.
take_memory() {
    local left folder=/dev/shm/crucible-test-$$
    for left in /dev/shm/crucible-test-*; do
        [ -e "/proc/${left##*-}" ] || rm -rf "$left" # of tests that were killed
    done
    has_room "$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" || return
    has_room "$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null)" || return
    mkdir -m 711 "$folder" || return # a server of PostgreSQL is another user
    # shellcheck disable=SC2064 # this folder, whatever becomes of the name
    trap "rm -rf '$folder'" EXIT
    printf '#!/bin/sh\n' >"$folder/run" && chmod +x "$folder/run" && "$folder/run" 2>/dev/null && memory=$folder
}

has_room() { [ "${1:-0}" -gt 4000000 ] 2>/dev/null; } # KiB

in_memory() { [[ -n $memory && $on_disk != *" $1 "* ]]; }

# processor_in NAME: the seconds of what a shell started, from what it wrote down with `times`.
processor_in() { awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$run/$1.times"; }

# run_suite SUITE: in a process of its own, whose children are the suite's alone, so that it knows their time.
run_suite() (
    name=$1 started=$SECONDS
    trap 'exit 130' INT
    trap - EXIT
    if in_memory "$name"; then export TMPDIR=$memory; fi
    printf '\n== %s\n' "$name"
    "suite_$name"
    code=$?
    times >"$run/$name.times"
    echo "$code $((SECONDS - started)) $(processor_in "$name")" >"$run/$name.result"
    [ "$code" != 130 ]
)

# run_lane SUITE...: those that no other lane has taken. Says which have ended, and at last a dot.
run_lane() {
    local name
    trap 'exit 130' INT
    trap 'echo .' EXIT
    for name in "$@"; do
        mkdir "$run/$name.taken" 2>/dev/null || continue
        say "$name begins"
        run_suite "$name" >"$run/$name.out" 2>&1 || exit
        echo "$name"
    done
}

# behind NICENESS SUITE...: a lane that gives way to those with less of it.
behind() {
    renice -n "$1" -p "$BASHPID" >/dev/null
    run_lane "${@:2}"
}

# One lane of tests that wait much of their time, and behind it three of tests that compute, one process each, which take
# the rest of the processors, beside what only reads the sources. The longest goes before the others, or all would wait
# for it at the end. A lane that has done what it begins with takes over from the others. What a suite wrote is shown
# once it has ended.
run_lanes() {
    local said open=5
    workers=()
    mkfifo "$run/ended"
    exec 3<>"$run/ended"
    set -m # each is a process group, which is ended as a whole
    run_lane faults e2e stores templates simulation agent postgres hostile unit >&3 &
    behind 5 unit simulation templates agent postgres hostile stores e2e faults >&3 &
    behind 10 hostile agent templates simulation postgres unit stores e2e faults >&3 &
    behind 10 postgres simulation templates agent hostile unit stores e2e faults >&3 &
    behind 10 lint types rooms >&3 &
    set +m
    while [ "$open" != 0 ]; do
        read -r said <&3
        if [ "$said" = . ]; then open=$((open - 1)); else cat "$run/$said.out"; fi
    done
}

# What failed is run once more when nothing else runs: a test that passes then ran into a busy machine, and the summary
# says so; one that fails again fails its suite.
try_again() {
    local name=$1 arguments
    if in_memory "$name"; then local -x TMPDIR=$memory; fi
    eval "arguments=($(cat "$run/$name.arguments"))"
    printf '\n== %s: what failed, once more\n' "$name"
    "$bin/python" -m pytest -q -o cache_dir=".pytest_cache/$name" "${arguments[@]}" -n 0 --last-failed --last-failed-no-failures=none
}

# conclude SUITE: sets `failed` if it did, and adds its line to `results`.
conclude() {
    local name=$1 code=1 seconds=0 processor=0 outcome=passed
    [ -f "$run/$name.result" ] && read -r code seconds processor <"$run/$name.result"
    if [ "$code" = 1 ] && [ -f "$run/$name.arguments" ] && try_again "$name"; then
        code=0 outcome="passed, some only at the second try (see above)"
    fi
    [ "$code" = 0 ] || failed=1 outcome="FAILED ($code)"
    total=$((total + processor))
    note_result "$name" "$seconds" "$processor" "$outcome"
}

note_result() { results+=("$(printf '%-10s %5d s %5d s of processor  %s' "$@")"); }

# skipped_by SUITE...: from what pytest wrote, each reason with its number of tests.
skipped_by() {
    local name
    for name in "$@"; do
        [ -f "$run/$name.txt" ] && sed -n -e $'s/\x1b\\[[0-9;]*m//g' -e "s/^SKIPPED /$(printf '%-10s' "$name") /p" "$run/$name.txt"
    done
}

stop() {
    trap '' INT TERM
    for group in $(jobs -p); do kill -INT -- "-$group" 2>/dev/null; done
    wait
    exit 130
}

suites=("$@")
[ $# = 0 ] && suites=("${all[@]}")
for name in "${suites[@]}"; do
    declare -F "suite_$name" >/dev/null || die "no suite is named $name" "The suites are: ${all[*]}"
done

trap stop INT TERM
# Without bytecode every worker of every suite compiles the tests, and what they start, from the beginning.
unset VIRTUAL_ENV CRUCIBLE_HOME CRUCIBLE_SERVER PYTHONDONTWRITEBYTECODE
rm -rf "$run"
mkdir -p "$run"
color=$([ -t 1 ] && echo yes || echo no)
results=()
failed=0
total=0
memory=

scripts/setup.sh dev || exit
bring "${suites[@]}"
setup=$SECONDS
times >"$run/setup.times"
take_memory
if [ $# = 0 ]; then
    run_lanes
else
    for name in "${suites[@]}"; do
        run_suite "$name" || exit 130
    done
fi
for name in "${suites[@]}"; do conclude "$name"; done

note_result setup "$setup" "$(processor_in setup)" "with its downloads"
note_result all "$SECONDS" "$total" "$([ "$failed" = 0 ] && echo passed || echo FAILED)"
skipped=$(skipped_by "${suites[@]}")
printf '\n== skipped\n%s\n' "${skipped:-nothing}"
printf '\n== time of each suite\n'
printf '%s\n' "${results[@]}"
exit "$failed"
