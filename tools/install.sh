#!/bin/sh
# Prepares .venv: a Python of 3.11 or later, the locked packages with their hashes, and this tree in editable form.
# Called by `make install`. A second run with nothing changed ends at once; a changed lock is brought up to date.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "make install: $*" >&2
    exit 1
}

# Settings of the caller that would send packages elsewhere.
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1

recent_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13}; do
        if command -v "$candidate" >/dev/null 2>&1 && recent_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    found=$(${PYTHON:-python3} --version 2>&1) || found="none"
    fail "Python 3.11 or later is needed, found: $found (set PYTHON to another interpreter)"
}

# Debian ships the venv module in a package of its own.
ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    command -v apt-get >/dev/null 2>&1 || fail "$1 has no venv module: install it and try again"
    [ "$(id -u)" = 0 ] || fail "$1 has no venv module: run \`sudo apt-get install $package\` and try again"
    echo "installing $package"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$package"; } >/dev/null ||
        fail "apt-get could not install $package"
}

stamp=.venv/installed.stamp
described() {
    pwd -P
    cat requirements/dev.lock pyproject.toml worker_sdk/python/pyproject.toml
}
wanted=$(described | sha256sum | cut -d ' ' -f 1)

# Two first runs at once (a demo and a test, say) take turns.
mkdir -p build
if command -v flock >/dev/null 2>&1; then
    exec 9>build/install.lock
    flock 9
fi

if [ "$(cat $stamp 2>/dev/null || true)" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi
python=$(find_python)
ensure_venv_module "$python"
echo "preparing .venv with $("$python" --version) ($python); the first time takes a minute or two"
rm -f $stamp
# A directory that was moved or whose interpreter is gone is made anew.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || ! head -n 1 .venv/bin/pip | grep -qF "$(pwd -P)/.venv"; then
    "$python" -m venv --clear .venv || fail "$python -m venv .venv failed"
fi
.venv/bin/python -m pip install --quiet --require-hashes -r requirements/dev.lock ||
    fail "the packages of requirements/dev.lock could not be installed"
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e . -e worker_sdk/python ||
    fail "this tree could not be installed into .venv"
echo "$wanted" >$stamp
echo "ready: .venv/bin/tidewheel"
