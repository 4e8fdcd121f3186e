#!/usr/bin/env bash
# Trains a small model through Crucible, in a state folder of its own, and takes its server down again.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/setup.sh || exit

export CRUCIBLE_HOME="$PWD/.demo"
unset CRUCIBLE_SERVER
crucible=$PWD/.venv/bin/crucible

# `crucible` as a person has to type it for the demo's own state folder.
by_hand() { printf 'CRUCIBLE_HOME=%q %q %s' "$CRUCIBLE_HOME" "$crucible" "$*"; }

cancel_jobs() {
    local ids
    mapfile -t ids < <("$crucible" status --quiet 2>/dev/null)
    [ "${#ids[@]}" = 0 ] && return
    say "Cancelling the demo's job …"
    "$crucible" cancel --yes "${ids[@]}" ||
        say "The demo's job may still run; to end it: $(by_hand cancel --yes "${ids[@]}")"
}

take_down() {
    "$crucible" down --yes >/dev/null 2>&1 ||
        say "The demo's server may still be up; to stop it: $(by_hand down --yes)"
}

# Ctrl-C reaches `crucible run`, which detaches; nobody would look after the job then, so it is cancelled below.
trap : INT
trap take_down EXIT

say "\$ crucible run examples/train_digits.py -- --epochs 8"
"$crucible" run examples/train_digits.py -- --epochs 8
code=$?

if [ "$code" = 0 ]; then
    say ""
    say "That was a job, from submit to its outputs. What to try next:"
    say "  source .venv/bin/activate"
    say "  crucible run examples/train_digits.py -- --epochs 20     follow it; Ctrl-C detaches, the job goes on"
    say "  crucible jobs                                            what ran, and what runs"
    say "  crucible logs ID;  crucible metrics ID;  crucible download ID"
    say "  crucible run your_script.py                              your own code, as it is"
    say "The demo kept its state in .demo; your own jobs live in your user folders (crucible doctor says where)."
elif [ "$code" = 130 ]; then
    say ""
    cancel_jobs
    say "The demo was interrupted. What it left is in .demo; to look at it: $(by_hand jobs)"
else
    say ""
    say "The demo's job ended with code $code. To look closer: $(by_hand doctor)"
fi
exit "$code"
