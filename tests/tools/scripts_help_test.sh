#!/bin/bash
# Every script has --help and --version, which do nothing else. tools/lint and .ci/run report what they find.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

header=$(realpath "$1")
root=$PWD

# ask SCRIPT ARGUMENT: runs the script; its output goes to out. The case fails if the script calls bazel, mm or another
# command of `stand_ins`.
ask() {
    local script=$1 status=0
    shift
    PATH=$stand_ins:$PATH PYTHONDONTWRITEBYTECODE=1 "$root/$script" "$@" >out 2>err </dev/null || status=$?
    ((status == 0)) || fail "$script $*: status $status"
    [[ ! -s err && ! -e calls ]] || fail "$script $*: does something else"
}

every_script_has_help_and_a_version_() {
    local script version scripts=()
    mkdir bin
    stand_ins=$PWD/bin
    for name in bazel mm sudo apt-get curl npm dpkg-query; do
        printf '#!/bin/bash\necho "%s" >>"%s/calls"\nexit 1\n' "$name" "$PWD" >"bin/$name"
        chmod +x "bin/$name"
    done
    version="mm $(sed -n 's/^#define MM_VERSION "\(.*\)"$/\1/p' "$header")"
    for script in "$root"/.ci/run "$root"/tools/* "$root"/tools/bench/* "$root"/tools/instances/*; do
        [[ -f $script && $(head -c 2 "$script") == "#!" ]] && scripts+=("${script#"$root/"}")
    done
    ((${#scripts[@]} >= 14)) || fail "only ${#scripts[@]} scripts: ${scripts[*]}"
    for script in "${scripts[@]}"; do
        ask "$script" --help
        says out "${script##*/}"
        ask "$script" --version
        [[ $(<out) == "$version" ]] || fail "$script --version: $(<out), expected $version"
    done
}

# tree SCRIPT...: makes a source tree, here, with only these scripts.
tree() {
    mkdir -p .ci tools
    local script
    for script in "$@"; do cp "$root/$script" "$script"; done
}

ci_fails_if_lint_or_a_test_does_and_ends_with_the_count_() {
    local lint tests status
    tree .ci/run
    echo 'exit 0' >tools/deps
    for lint in 0 1; do
        for tests in 0 1; do
            printf 'echo linted\nexit %s\n' $lint >tools/lint
            printf 'echo == tests\necho took 1:00\necho 5 passed, %s failed, 0 skipped\nexit %s\n' $tests $tests >tools/test
            chmod +x tools/*
            status=0
            .ci/run >out 2>&1 || status=$?
            ((status == (lint || tests))) || fail "lint $lint, tests $tests: status $status"
            says out "linted"
            [[ $(tail -n 1 out) == "5 passed, $tests failed, 0 skipped" ]] || fail "ends with $(tail -n 1 out)"
            [[ $(tail -n 2 out | head -n 1) == "tools/lint $( ((lint)) && echo FAILED || echo found)"* ]] ||
                fail "lint $lint is not told of"
        done
    done
}

# Stands in for bazel: 60 tests pass whose names are so long that no pipe holds them all.
stand_in_bazel() {
    mkdir -p bin logs
    cat >bin/bazel <<'END'
#!/bin/bash
part=$(printf '%0200d' 0) name=
for ((i = 0; i < 15; i++)); do name+=$part/; done
case $1 in
query) echo //tests:a ;;
info) echo "$PWD/logs" ;;
test)
    for ((i = 0; i < 60; i++)); do
        mkdir -p "logs/$name$i" && echo '[  PASSED  ] 2 test(s).' >"logs/$name$i/test.log"
        echo "//${name%/}:$i PASSED in $i.5s"
    done
    ;;
esac
END
    chmod +x bin/bazel
}

# "sort | head" ended the script where head was the faster of the two.
tests_end_with_the_count_however_much_there_is_to_sort_() {
    tree tools/test
    echo 'exit 0' >tools/deps
    chmod +x tools/deps
    stand_in_bazel
    # shellcheck disable=SC2065 # a script that is named test
    PATH=$PWD/bin:$PATH tools/test --quick >out 2>&1 || fail "status $?: $(tail -c 300 out)"
    [[ $(tail -n 1 out) == "240 passed, 0 failed, "*" skipped" ]] || fail "ends with $(tail -c 300 out)"
    [[ $(sed -n '/^the longest/,/^took/p' out | cut -c1-8 | sed -n 2p) == "    59.5" ]] || fail "the longest: $(cut -c1-40 out)"
}

# Stands in for CUDA's toolkit: nvcc makes code of as many instructions as the source has lines, then a jump to itself
# and padding.
stand_in_nvcc() {
    mkdir -p cuda/bin
    cat >cuda/bin/nvcc <<'END'
#!/bin/bash
while (($# > 1)); do [[ $1 == -o ]] && out=$2; [[ $1 == *.cu ]] && file=$1; shift; done
{
    echo '.section .text._Z6encodeILi2EEvPKf,"ax"'
    while read -r; do echo '.quad 0x210, 0'; done <"$file"
    echo '.quad 0x947, 0, 0x918, 0, 0x918, 0'
} | as -o "$out" || exit
echo "ptxas info    : Compiling entry function '_Z6encodeILi2EEvPKf' for 'sm_90'
ptxas info    : Function properties for _Z6encodeILi2EEvPKf
    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used $(wc -l <"$file")0 registers, used 1 barriers, 4096 bytes smem"
END
    chmod +x cuda/bin/nvcc
}

kernels_static_tells_of_each_kernel_and_of_another_checkouts_() {
    local script=$root/tools/bench/kernels_static version lines
    command -v as >/dev/null || skip "there is no assembler"
    stand_in_nvcc
    for version in before after; do
        mkdir -p $version/tools/bazel $version/pipeline/codec
        echo '_NVCC_COPTS = ["-O3"]' >$version/tools/bazel/cuda.bzl
        lines=$([[ $version == before ]] && echo 3 || echo 5)
        seq "$lines" >$version/pipeline/codec/some_cuda.cu
    done
    CUDA_HOME=$PWD/cuda "$script" --tree after some >out || fail "status $?"
    says out "some_cuda  encode<2>         50      8       20    4096             5"
    CUDA_HOME=$PWD/cuda "$script" --tree after --stack 8 >out || fail "status $?: a stack of 8 bytes is no more than 8"
    says out "1 kernels, 0 with a stack frame above 8 bytes"
    ! CUDA_HOME=$PWD/cuda "$script" --tree after --stack 7 >out || fail "a stack of 8 bytes is let pass"
    says out "1 kernels, 1 with a stack frame above 7 bytes"
    CUDA_HOME=$PWD/cuda "$script" --tree after --before before >out || fail "status $?"
    says out "some_cuda  encode<2>   30 -> 50      8       20    4096        3 -> 5"
    ! CUDA_HOME=$PWD/cuda "$script" --tree after another 2>err || fail "finds what is not there"
    says err "another"
    ! CUDA_HOME=$PWD/none "$script" --tree after 2>err || fail "needs no toolkit"
    says err "there is no CUDA toolkit"
}

# shellcheck disable=SC2016 # a script's text
lint_finds_what_was_planted_() {
    local tool
    for tool in git shellcheck; do command -v $tool >/dev/null || skip "there is no $tool"; done
    tree tools/lint tools/columns.awk .clang-format .clang-tidy
    local licence="SPDX-License-Identifier: MIT"
    printf '/* %s */\n#include <string.h>\n\nint mm_two(void);\n\nint mm_two(void) { return 2; }\n' "$licence" >two.c
    printf '#!/bin/bash\n# %s\necho "$1"\n' "$licence" >say
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
    git init -q . && git add -A && git commit -qm clean
    tools/lint >out 2>&1 || fail "a clean tree is refused"
    says out "licence: 4 files"
    says out "shellcheck: 2 files"
    ! grep -q "NOT CHECKED" out || skip "there is no clang of the version that the tree is formatted with"

    planted 'echo $1' say SC2086
    planted 'int  mm_three(void);' two.c clang-format-violations
    planted 'int mm_is(const char *a) { return strcmp(a, "x") && *a; }' two.c suspicious-string-compare
    planted 'int mm_zero(int a) { return a / 0; }' two.c DivideZero
    planted "# $(printf 'word %.0s' {1..30})" say "say:4: 152 columns"
    sed -i '/SPDX/d' say
    planted : say "say: no line SPDX-License-Identifier: MIT"
}

# planted LINE FILE TEXT: with LINE appended to FILE, tools/lint fails and says TEXT.
planted() {
    cp "$2" was
    echo "$1" >>"$2"
    if tools/lint >out 2>&1; then fail "nothing found in: $1"; fi
    says out "$3"
    mv was "$2"
}

run_cases
