#!/bin/bash
# Networks that train on an emulated GPU, as a program of a ptx_test: every lossless policy gives the same weights.
# SPDX-License-Identifier: MIT
set -- tools/mm
# shellcheck source=tests/tools/cli.sh
. tests/tools/cli.sh

trains() { # NAME OPTION...
    expect 0 train --batch 2 --device cuda --deterministic --quiet --no-measure --iterations 2 --save "$@"
}

lossless_policies_give_the_same_weights_() {
    local net policy
    for net in "--net tiny" "--net resnet20@16x16 --precision bf16" "--net vgg11@32x32,thin=13 --precision bf16" \
        "--net unet@188x188,thin=16 --precision bf16" \
        "--net llama-15m,layers=2,width=32,heads=4,kv_heads=2,context=32,vocabulary=64 --precision bf16 --optimizer adamw" \
        "--net gpt,layers=1,width=16,heads=2,context=16,vocabulary=32,dropout=0.1"; do
        # shellcheck disable=SC2086
        trains state $net
        for policy in gist comet:codec=zvc swap-async:when=always; do
            # shellcheck disable=SC2086
            trains "state.$policy" $net --policy $policy
            equal_tensors state "state.$policy"
        done
    done
}

batch_norms_read_maps_that_were_coded_() {
    trains state --net resnet20@16x16 --precision bf16 --policy freelunch:rate=4
}

batch_norms_write_and_read_codes_in_step_() {
    local codec
    for codec in zfp:rate=6.4 dpr:fp16; do
        trains state --net resnet20@16x16 --policy "freelunch:codec=$codec,codes=in-step,eligible=all"
        trains beside --net resnet20@16x16 --policy "freelunch:codec=$codec,codes=beside,eligible=all"
    done
}

run_cases
