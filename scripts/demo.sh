#!/usr/bin/env bash
# Trains nanoGPT on a simulated spot machine that is taken away half-way, in a state folder of its own; tells what
# happened, and takes down what it started.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

steps=2000
taken_after=800
notice=30

scripts/setup.sh || exit

export CRUCIBLE_HOME="$PWD/.demo"
export CRUCIBLE_BACKENDS=local,rehearsal
unset CRUCIBLE_SERVER CRUCIBLE_DATABASE CRUCIBLE_STORE CRUCIBLE_LOCAL_FOLDER CRUCIBLE_REHEARSAL_STATE
crucible=$PWD/.venv/bin/crucible
python=$PWD/.venv/bin/python
provider=

# `crucible` as a person has to type it for the demo's own state folder.
by_hand() { printf 'CRUCIBLE_HOME=%q CRUCIBLE_BACKENDS=%s %q %s' "$CRUCIBLE_HOME" "$CRUCIBLE_BACKENDS" "$crucible" "$*"; }

cancel_jobs() {
    local ids
    mapfile -t ids < <("$crucible" status --quiet 2>/dev/null)
    [ "${#ids[@]}" = 0 ] && return
    say "Cancelling the demo's job …"
    "$crucible" cancel --yes "${ids[@]}" ||
        say "The demo's job may still run; to end it: $(by_hand cancel --yes "${ids[@]}")"
}

end_machines() {
    local ids
    mapfile -t ids < <("$crucible" machines --quiet 2>/dev/null)
    [ "${#ids[@]}" = 0 ] || "$crucible" machines terminate --yes --quiet "${ids[@]}" >/dev/null 2>&1
}

take_down() {
    [ -z "$provider" ] || { kill "$provider" && wait "$provider"; } 2>/dev/null
    [ -f "$CRUCIBLE_HOME/server.json" ] || return
    end_machines
    "$crucible" down --yes >/dev/null 2>&1 ||
        say "The demo's server may still be up; to stop it: $(by_hand down --yes)"
    "$python" scripts/demo_provider.py close ||
        say "The demo's simulated cloud may still be up; to stop it: make clean"
}

story() {
    local job
    job=$("$crucible" jobs --quiet --limit 1) || return
    {
        "$crucible" status "$job" --json
        "$crucible" checkpoints "$job" --json
    } | "$python" scripts/demo_story.py
}

trap 'exit 130' INT
trap take_down EXIT

say "A small GPT is trained on a spot machine of a simulated cloud. Once step $taken_after is saved, the cloud takes the"
say "machine back, and the job goes on on this computer. (The first time, its environment with PyTorch is built.)"
say ""
# What an earlier demo left, if it was killed: a server that may have other settings, a job that still runs.
[ ! -f "$CRUCIBLE_HOME/server.json" ] || "$crucible" down --yes >/dev/null 2>&1
# Ctrl-C counts once it is up: what is half up could not be taken down.
(trap '' INT && exec "$crucible" up --quiet) >/dev/null || exit
cancel_jobs
trap '' INT # inherited: Ctrl-C is not for the provider
"$python" scripts/demo_provider.py reclaim --after "$taken_after" --notice "$notice" &
provider=$!
# Ctrl-C reaches `crucible run`, which detaches; nobody would look after the job then, so it is cancelled below.
trap : INT

code_arguments=(--preset cpu-tiny --steps "$steps" --checkpoint-every 200 --eval-every 200 --log-every 50)
arguments=(--template nanogpt --backend rehearsal,local --market spot -- "${code_arguments[@]}")
say "\$ crucible run ${arguments[*]}"
"$crucible" run "${arguments[@]}"
code=$?

if [ "$code" = 0 ]; then
    story || code=1
    if ! kill -0 "$provider" 2>/dev/null && ! wait "$provider"; then
        say "The demo's provider failed, and took no machine away; what it said stands above."
        code=1
    fi
elif [ "$code" = 130 ]; then
    say ""
    cancel_jobs
    say "The demo was interrupted. What it left is in .demo; to look at it: $(by_hand jobs)"
else
    say ""
    say "The demo's job ended with code $code. To look closer: $(by_hand doctor)"
fi
exit "$code"
