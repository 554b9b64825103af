#!/bin/sh
# Prints the path of the model checker spin that tests/models should use: $SPIN_BIN, `spin` on PATH, or the
# distribution's own, unpacked under build/ where root has apt-get; nothing where it cannot be had (those tests then
# fail and say so). Says on stderr what it did. Called by `make test` and `make models`.
set -eu

if [ -n "${SPIN_BIN:-}" ]; then
    echo "$SPIN_BIN"
elif command -v spin >/dev/null 2>&1; then
    command -v spin
else
    "$(dirname "$0")/unpack_debian.sh" spin usr/bin/spin
fi
