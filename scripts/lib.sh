# Shared by the scripts beside it; source it from the top of the project.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $1"
    shift
    for line in "$@"; do say "       $line"; done
    exit 1
}

on_debian() { [ -f /etc/debian_version ] && command -v apt-get >/dev/null; }

# apt_install PACKAGE...: installs on Debian as root; elsewhere fails without doing anything.
apt_install() {
    on_debian && [ "$(id -u)" = 0 ] || return 1
    say "Installing system packages: $*"
    local apt=(apt-get -o DPkg::Lock::Timeout=600)
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" -qq update >&2 &&
        DEBIAN_FRONTEND=noninteractive "${apt[@]}" -qq install -y --no-install-recommends "$@" >&2
}

# how_to_install PACKAGE...: the command to tell the user.
how_to_install() {
    if on_debian; then
        echo "sudo apt-get install $*"
    elif command -v dnf >/dev/null; then
        echo "sudo dnf install $*"
    elif command -v brew >/dev/null; then
        echo "brew install $*"
    else
        echo "install $* with your system's package manager"
    fi
}

# Tests read system calls with strace, make repositories with git, compile a clock that can be set with gcc, run a
# PostgreSQL server of their own, and make computers with sshd in name spaces.
bring_system_packages() {
    local tool missing=()
    for tool in git strace; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    command -v gcc >/dev/null || missing+=(gcc libc6-dev)
    command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
    command -v ssh >/dev/null || missing+=(openssh-client)
    [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
    command -v ip >/dev/null || missing+=(iproute2)
    [ ${#missing[@]} = 0 ] && return
    apt_install "${missing[@]}" || say "missing: ${missing[*]}; tests that need them will say so. $(how_to_install "${missing[@]}")"
}
