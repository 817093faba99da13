# Shared by the scripts beside it: the checkout's own .venv, and Debian packages where we may install them.
# Sourced, not run. Everything here is safe to run again.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
APT_UPDATED=no

# find_python : print the first Python that is new enough; 1 when there is none.
find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# apt_install PACKAGE… : install without starting any service. Installing openssh-server would else open port 22 of
# the developer's own machine; the tests start their own sshd on a loopback port.
apt_install() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
)

# ensure_debian PACKAGE… : install what is missing, as root alone, saying so. It never fails: what stays missing is
# told, and whoever needs it says so again.
ensure_debian() {
    local missing=() package
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        return 0
    fi
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "These Debian packages are missing, and only root can install them: ${missing[*]}" >&2
        return 0
    fi
    echo "Installing Debian packages: ${missing[*]}" >&2
    if [ "$APT_UPDATED" = no ]; then
        apt-get update -qq >&2 || echo "apt-get update failed; trying with the lists that are there" >&2
        APT_UPDATED=yes
    fi
    apt_install "${missing[@]}" || echo "These Debian packages could not be installed: ${missing[*]}" >&2
}

# make_venv DIRECTORY : an empty virtual environment there, with pip.
make_venv() {
    local directory="$1" python
    python="$(find_python)" || {
        ensure_debian python3 python3-venv
        python="$(find_python)" || {
            echo "No Python of 3.11 or newer was found. On Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv" >&2
            return 1
        }
    }
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then   # Debian and Ubuntu ship it apart
        ensure_debian "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    "$python" -m venv --clear "$directory" || {
        rm -rf "$directory"   # half made, it would look whole to the next run
        echo "$python cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
        return 1
    }
}

# ensure_venv EXTRAS : make .venv and install the checkout with these extras ("" or "check,test"), again only when
# pyproject.toml or the place of the checkout changed.
ensure_venv() {
    local extras="$1" stamp want
    want="$(cksum <"$ROOT/pyproject.toml") $ROOT"
    for stamp in "$VENV/.installed${extras:+-${extras//,/-}}" "$VENV/.installed-check-test"; do
        if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
            return 0
        fi
    done
    if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || venv_moved; then
        make_venv "$VENV"
        echo "$ROOT" >"$VENV/.made-for"
    fi
    echo "Installing inference-supervisor${extras:+ [$extras]} into .venv" >&2
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check -e "$ROOT${extras:+[$extras]}" >&2
    echo "$want" >"$VENV/.installed${extras:+-${extras//,/-}}"
}

# A checkout that was moved or copied has scripts in .venv/bin that start the old place's interpreter.
venv_moved() {
    [ -f "$VENV/.made-for" ] && [ "$(cat "$VENV/.made-for")" != "$ROOT" ]
}
