#!/bin/bash
# auto_test.sh MM H200 TITANX: what auto is good for, by simulated speeds: transformers in tight budgets, where rules of
# the same engine were faster once.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

h200=$(realpath "$2")
titanx=$(realpath "$3")

# A block's sums are swapped, all else is made again for each use.
rule="rules:h.*.add=lean-swap;wpe=lean-swap;linear=recompute;attention=recompute;ln=recompute;gelu=recompute"
rule+=";*=lean-swap,mode=memory"

# Sets speeds to the rows' own, without those of offers (sub-batches).
read_speeds() {
    sed '/^      /d' rows >own
    mapfile -t speeds < <(values own images_per_second)
}

# beats MACHINE NET BATCH BUDGET SPEED: auto makes so many images/s, and no fewer than the rule.
beats() {
    local -a speeds
    expect 0 bench --simulate "$1" --net "$2" --batch "$3" --budgets "$4" --policies "auto,$rule" --quiet --json rows
    read_speeds
    ! is_less "${speeds[0]}" "$5" || fail "$2 in $4: ${speeds[0]} images/s, not $5"
    ! is_less "${speeds[0]}" "${speeds[1]}" || fail "$2 in $4: ${speeds[0]} images/s, ${speeds[1]} by the rule"
}

transformers_in_little_memory_() {
    beats "$h200" gpt 64 60MiB 43500
    beats "$h200" gpt 64 54MiB 27800
    beats "$h200" gpt,layers=6,width=256,heads=8,context=256 16 110MiB 6850
    beats "$h200" gpt,layers=3,width=192,heads=6 32 50MiB 0
    beats "$titanx" gpt,layers=12 64 85MiB 973
}

# A lossless code for maps with zeros is always in the menu.
codes_for_maps_with_zeros_need_not_be_named_() {
    local -a speeds
    local other policies="auto,cdma:codec=zvc,rules:*=compress(zvc);*=lean-swap"
    expect 0 bench --simulate "$h200" --net resnet20 --batch 64 --budgets 24MiB --policies "$policies" --quiet --json rows
    read_speeds
    for other in "${speeds[@]:1}"; do
        [[ $other == null ]] || ! is_less "${speeds[0]}" "$other" || fail "${speeds[0]} images/s, not $other"
    done
    [[ $(values rows lossy) != *true* ]] || fail "lossless codes count as lossy"
}

# 'auto' without the codec is tried first: with exponent, this plan took a third longer once.
naming_a_codec_never_makes_a_plan_slower_() {
    local -a speeds
    expect 0 bench --simulate "$h200" --net gpt --batch 64 --budgets 48MiB --policies "auto,auto:codecs=exponent" \
        --quiet --json rows
    read_speeds
    ! is_less "${speeds[1]}" "${speeds[0]}" || fail "${speeds[1]} images/s with exponent, ${speeds[0]} without"
}

run_cases
