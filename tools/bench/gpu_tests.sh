# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by tools/bench/gpu: the parts tests, sanitizer and suites.
# shellcheck disable=SC2154 # variables of the script

# Runs each built test of a list. $1: the list; $2: seconds of each; the rest: a tool to run them under. Returns 124 if
# some were cut and none failed.
each_test() {
    local list=$1 seconds=$2 status=0 code test begin
    shift 2
    while read -r test <&3; do
        echo "-- $* $test"
        begin=$SECONDS code=0
        (cd "$bin" && TEST_TMPDIR=$scratch within "$seconds" "${ours[@]}" "$@" "./$test") || code=$?
        case $code in
        0) ;;
        124 | 130 | 137) ((status)) || status=124; echo "-- CUT: $* $test after $((SECONDS - begin)) s" ;;
        *) status=1 && echo "-- FAILED: $* $test ($code)" ;;
        esac
    done 3<"$list"
    return $status
}

# Checks memory in all tests (tests of kernels first), and races in tests of kernels. $1: seconds of each test. API
# errors are not reported, because tests cause some on purpose. With --quick, tests of whole networks are left out: for
# cuDNN's kernels the tools take minutes.
sanitize() {
    local list tool code status=0 all=$out/cuda_tests.txt
    grep -E 'codec|op_agree' "$all" >"$scratch/kernels"
    cp "$scratch/kernels" "$scratch/all"
    grep -vE "codec|op_agree|describe$($quick && echo '|/train')" "$all" >>"$scratch/all"
    for code in "all memcheck --report-api-errors no" "kernels racecheck"; do
        read -r list tool <<<"$code"
        # shellcheck disable=SC2086 # words
        each_test "$scratch/$list" "$1" "$sanitizer" --error-exitcode 99 --tool $tool
        code=$?
        ((code == 0)) || { ((code == 124 && status)) || status=$code; }
    done
    return $status
}

part_sanitizer() {
    local sanitizer code=0
    part sanitizer || return 0
    sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer \
        type -P compute-sanitizer)
    # Some machines refuse the tool: this tries it once. Status 99: it works, and found something.
    [[ ! $sanitizer ]] || within 60 "${ours[@]}" "$sanitizer" --error-exitcode 99 --tool memcheck --report-api-errors no \
        "$bin/tools/mm" device --device cuda >"$out/sanitizer-probe.log" 2>&1 || code=$?
    if [[ ! $sanitizer ]]; then
        note sanitizer 0 "skipped: no compute-sanitizer"
    elif ((code != 0 && code != 99)); then
        note sanitizer 0 "skipped: refused ($code): $(grep '^=====' "$out/sanitizer-probe.log" | tail -1 | cut -c1-100)"
    else
        run sanitizer 0 sanitize "$(if $quick; then echo 30; else echo 600; fi)"
    fi
}

# Runs operations and codecs first, then the device, then whole networks, so that the least important tests are cut.
# Those of cuDNN's plans, which use no GPU, come last.
part_tests() {
    part tests || return 0
    local first
    for first in op_agree codec_cuda device_cuda train_agree train_cuda fault_cuda; do
        grep "/${first}_test\$" "$out/cuda_tests.txt"
    done >"$scratch/tests"
    grep -vxF -f "$scratch/tests" "$out/cuda_tests.txt" >"$scratch/rest"
    { grep -v /cudnn_ "$scratch/rest"; grep /cudnn_ "$scratch/rest"; } >>"$scratch/tests"
    run tests 0 each_test "$scratch/tests" 90 # one at a time: they share the GPU
}

part_suites() {
    part suites || return 0
    [[ -s $out/suites.txt ]] || { note suites 0 "skipped: a pack has none" && return; }
    run suites 0 each_test "$out/suites.txt" "$(if $quick; then echo 60; else echo 1200; fi)"
}
