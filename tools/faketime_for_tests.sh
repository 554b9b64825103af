#!/bin/sh
# Prints the path of the libfaketime that the tests of a jumping wall clock load into processes: $FAKETIME_LIB, else the
# distribution's own, installed or unpacked under build/; nothing where it cannot be had. Called by those tests.
set -eu

if [ -n "${FAKETIME_LIB:-}" ]; then
    echo "$FAKETIME_LIB"
    exit 0
fi
for installed in /usr/lib/*/faketime/libfaketimeMT.so.1; do
    if [ -e "$installed" ]; then
        echo "$installed"
        exit 0
    fi
done
"$(dirname "$0")/unpack_debian.sh" libfaketime 'usr/lib/*/faketime/libfaketimeMT.so.1'
