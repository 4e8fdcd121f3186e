#!/usr/bin/env bash
# Makes ./.venv and installs the package in it, editable: `setup.sh` for use, `setup.sh dev` with the test tools.
# Does nothing when pyproject.toml, the place and the Python are those of the last time.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

extra=${1:-}
venv=.venv
fits='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null && "$candidate" -c "$fits" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "Crucible needs Python 3.11 or newer; ${PYTHON:-python3} is $(${PYTHON:-python3} -V 2>&1 || true)." \
        "Install one ($(how_to_install python3)), or name it: make demo PYTHON=/path/to/python3.12"
}

# Debian ships python3 without ensurepip, which `python3 -m venv` needs.
venv_package() {
    if [ "$("$1" -c 'import sys; print(sys.base_prefix)')" = /usr ] && [ "$(basename "$1")" != python3 ]; then
        echo "$(basename "$1")-venv"
    else
        echo python3-venv
    fi
}

make_venv() {
    local python package
    python=$(find_python)
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        package=$(venv_package "$python")
        if ! apt_install "$package"; then
            die "$python cannot make virtual environments (its modules venv and ensurepip are missing)." \
                "To fix it: $(how_to_install "$package")"
        fi
    fi
    say "Making $venv with $("$python" -V)"
    "$python" -m venv --clear "$venv"
}

stamp_text() {
    "$venv/bin/python" -c 'import sys; print(sys.version)'
    pwd
    cat pyproject.toml
}

"$venv/bin/python" -c "$fits" 2>/dev/null || make_venv
# An environment made by another tool may come without pip.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null

stamp=$venv/.installed${extra:+-$extra}
if [ ! -f "$stamp" ] || [ "$(stamp_text)" != "$(cat "$stamp")" ]; then
    say "Installing Crucible in $venv${extra:+, with the tools of \"$extra\"} (the first time downloads packages)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --compile -e ".${extra:+[$extra]}"
    stamp_text >"$stamp"
fi
"$venv/bin/python" -m compileall -q src
