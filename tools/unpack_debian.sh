#!/bin/sh
# tools/unpack_debian.sh PACKAGE PATTERN: prints the path of the distribution's own file that matches PATTERN (a shell
# pattern below the package's root), or nothing where it cannot be had. Says on stderr what it did.
#
# Where root has apt-get at hand, the package is fetched and unpacked under build/PACKAGE: nothing is installed into the
# system, so no service starts on the machine. Called by the *_for_tests.sh beside it.
set -eu
cd "$(dirname "$0")/.."
package=$1
unpacked=build/$package

# Unpacked beside its place and moved there whole: a run that was stopped half-way leaves nothing that looks finished.
fetch() {
    echo "no $package here: fetching the distribution's own into $unpacked" >&2
    unfinished=build/unfinished-$package
    rm -rf "$unfinished"
    mkdir -p "$unfinished"
    (
        cd "$unfinished" || exit 1
        apt-get -qq download "$package" 2>/dev/null || { apt-get -qq update && apt-get -qq download "$package"; } ||
            exit 1
        dpkg-deb -x "$package"_*.deb .
    ) >&2 || return 1
    rm -rf "$unpacked"
    mv "$unfinished" "$unpacked"
}

found() {
    # The pattern is split and expanded on purpose.
    # shellcheck disable=SC2086
    for path in $unpacked/$1; do
        [ ! -e "$path" ] || echo "$PWD/$path"
    done | head -n 1
}

if [ -z "$(found "$2")" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    # Tests that run at once take turns; who waited finds what it came for.
    mkdir -p build
    if command -v flock >/dev/null 2>&1; then
        exec 9>build/unpack.lock
        flock 9
    fi
    [ -n "$(found "$2")" ] || fetch || echo "apt-get could not fetch $package" >&2
fi
found "$2"
