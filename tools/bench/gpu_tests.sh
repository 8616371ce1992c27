# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by tools/bench/gpu: the parts tests, sanitizer and suites.
# shellcheck disable=SC2154 # what the script has set

# Each test of a list, as it was built. $1: the list; $2: seconds of each; the rest: what they are run under. 124: some
# were cut, and none failed.
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

# Memory on all, races on the kernels, which come first; $1: seconds of each. Calls that CUDA refuses are the device's
# to tell, and tests make it. Whole networks run cuDNN's kernels, for which the tools take minutes.
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
    # Some machines refuse the tool, whatever it is to look at: asked once. 99: it works, and finds something.
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

# Operations and codecs first, then the device, then whole networks: what is cut says least.
part_tests() {
    part tests || return 0
    local first
    for first in op_agree codec_cuda device_cuda train_agree cuda_describe cudnn_plans cudnn_attention; do
        grep "/${first}_test\$" "$out/cuda_tests.txt"
    done >"$scratch/tests"
    grep -vxF -f "$scratch/tests" "$out/cuda_tests.txt" >>"$scratch/tests"
    run tests 0 each_test "$scratch/tests" 90 # one at a time: they share the GPU
}

part_suites() {
    part suites || return 0
    run suites 0 each_test "$out/suites.txt" "$(if $quick; then echo 60; else echo 1200; fi)"
}
