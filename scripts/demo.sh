#!/usr/bin/env bash
# Trains a small model through Crucible, in a state folder of its own, and takes its server down again.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/setup.sh || exit

export CRUCIBLE_HOME="$PWD/.demo"
unset CRUCIBLE_SERVER
crucible=$PWD/.venv/bin/crucible

take_down() {
    "$crucible" down --yes >/dev/null ||
        say "The demo's server may still be up; to stop it: CRUCIBLE_HOME=$CRUCIBLE_HOME $crucible down"
}

# Ctrl-C reaches `crucible run`, which detaches; the server is then taken down below all the same.
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
else
    say ""
    say "The demo's job ended with code $code. To look closer: CRUCIBLE_HOME=$CRUCIBLE_HOME $crucible doctor"
fi
exit "$code"
