#!/bin/bash
# tools/deps and tools/fetch-cifar10 where nothing can be reached or installed: every command that reaches out is a
# stand-in which fails.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../tools" && pwd)
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/tools_test.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    [[ ! -f $work/out ]] || sed 's/^/  | /' "$work/out" >&2
    exit 1
}

# expect STATUS COMMAND...: its output goes to $work/out.
expect() {
    local status=0 expected=$1
    shift
    "$@" >"$work/out" 2>&1 </dev/null || status=$?
    ((status == expected)) || fail "$*: status $status, expected $expected"
}

says() { grep -qF -- "$1" "$work/out" || fail "does not say: $1"; }

# stand_in NAME SCRIPT
stand_in() {
    printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

mkdir "$work/bin"
for name in apt-get curl npm sudo wget; do stand_in "$name" "echo \"$name \$*\" >>'$work/calls'; exit 1"; done
PATH=$work/bin:$PATH

usage_errors_exit_2() {
    expect 2 "$tools/fetch-cifar10"
    expect 2 "$tools/fetch-cifar10" ""
    expect 2 "$tools/fetch-cifar10" a b
    expect 2 "$tools/fetch-cifar10" --force
    expect 2 "$tools/deps" everything
    expect 0 "$tools/fetch-cifar10" --help
    says "tools/fetch-cifar10 DIR"
    expect 0 "$tools/deps" --help
    says "tools/deps [build|cifar10"
}

deps_is_silent_when_all_is_there() {
    # shellcheck disable=SC2016 # expands in the stand-in
    stand_in dpkg-query 'for name in "${@:3}"; do echo "installed $name"; done'
    expect 0 "$tools/deps"
    expect 0 "$tools/deps" build cifar10
    [[ ! -s $work/out ]] || fail "deps is not silent"
    [[ ! -e $work/calls ]] || fail "deps called $(<"$work/calls")"
}

deps_prints_the_line_for_what_is_missing() {
    # shellcheck disable=SC2016
    stand_in dpkg-query 'for name in "${@:3}"; do
        case $name in libzfp-dev) ;; libpng-dev) echo "config-files $name" ;; *) echo "installed $name" ;; esac
    done; exit 1'
    expect 2 "$tools/deps" build cifar10
    says "apt-get update && apt-get install -y --no-install-recommends libpng-dev libzfp-dev"
    rm "$work/bin/dpkg-query"
}

fetch_that_reaches_nothing_says_so_and_leaves_nothing() {
    # shellcheck disable=SC2016
    stand_in dpkg-query 'for name in "${@:3}"; do echo "installed $name"; done'
    expect 1 "$tools/fetch-cifar10" "$work/data"
    says "could not be fetched"
    says "--data synthetic"
    [[ ! -e $work/data ]] || fail "a folder was left"
    mkdir "$work/data"
    echo damaged >"$work/data/test_batch.bin"
    expect 1 "$tools/fetch-cifar10" "$work/data"
    [[ $(ls -A "$work/data") == test_batch.bin && $(<"$work/data/test_batch.bin") == damaged ]] ||
        fail "the folder was changed"
}

fetch_refuses_an_archive_of_something_else() {
    mkdir "$work/archive"
    head -c 30730000 /dev/zero >"$work/archive/data_batch_1.bin"
    tar -czf "$work/archive.tar.gz" -C "$work" archive
    # shellcheck disable=SC2016
    stand_in curl 'while (($#)); do [[ $1 != --output ]] || cp "'"$work"'/archive.tar.gz" "$2"; shift; done'
    expect 1 "$tools/fetch-cifar10" "$work/other"
    says "checksums differ"
    [[ ! -e $work/other ]] || fail "a folder was left"
}

fetch_says_where_it_cannot_write() {
    touch "$work/file"
    expect 1 "$tools/fetch-cifar10" "$work/file"
    says "$work/file cannot be written"
}

for name in usage_errors_exit_2 deps_is_silent_when_all_is_there deps_prints_the_line_for_what_is_missing \
    fetch_that_reaches_nothing_says_so_and_leaves_nothing fetch_refuses_an_archive_of_something_else \
    fetch_says_where_it_cannot_write; do
    "$name"
    echo "OK $name"
done
