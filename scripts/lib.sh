# Shared by the scripts beside it: the checkout's own .venv, and Debian packages where we may install them.
# Sourced, not run. Everything here is safe to run again.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"

find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "No Python of 3.11 or newer was found. On Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv" >&2
    return 1
}

# ensure_debian PACKAGE… : install what is missing, as root alone, saying so. Without root: say it and go on.
ensure_debian() {
    local missing=() package
    command -v dpkg-query >/dev/null 2>&1 || return 0
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "Not root, so these Debian packages stay missing: ${missing[*]}" >&2
        return 0
    fi
    echo "Installing Debian packages: ${missing[*]}" >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# ensure_venv EXTRAS : make .venv and install the checkout into it, again only when pyproject.toml changed.
ensure_venv() {
    local extras="$1" python stamp want
    if [ ! -x "$VENV/bin/python" ]; then
        python="$(find_python)"
        if ! "$python" -c 'import ensurepip' 2>/dev/null; then
            ensure_debian python3-venv
        fi
        "$python" -m venv "$VENV" || {
            echo "A virtual environment could not be made. On Debian or Ubuntu: apt-get install python3-venv" >&2
            return 1
        }
    fi
    stamp="$VENV/.installed-${extras//,/-}"
    want="$(cksum <"$ROOT/pyproject.toml")"
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$want" ]; then
        echo "Installing inference-supervisor${extras:+ [$extras]} into .venv" >&2
        "$VENV/bin/python" -m pip install -q --disable-pip-version-check -e "$ROOT${extras:+[$extras]}" >&2
        echo "$want" >"$stamp"
    fi
}
