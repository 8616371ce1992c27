#!/bin/bash
# plan_rates_test.sh MM MACHINE H200 H100 SMALL: times by a machine's rates. SMALL: the H200's with estimates of small
# work.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
h200=$(realpath "$3")
h100=$(realpath "$4")
small=$(realpath "$5")

a_links_speed_counts_more_than_that_of_the_facts_() {
    local link seconds=() plan=(plan --net tiny --batch 8 --policy swap-async:when=always --facts "$machine" --json row)
    for link in 1MB 20MB 12GB; do
        expect 0 "${plan[@]}" --link $link
        seconds+=("$(value row iteration_seconds_predicted)")
    done
    awk "BEGIN { exit !(${seconds[0]} > 5 * ${seconds[1]} && ${seconds[1]} > ${seconds[2]}) }" ||
        fail "steps of ${seconds[*]} s"
    sed 's/\("\(out\|in\)_bytes_per_s": \)12e9/\11e6/; s/\("\(out\|in\)_both_bytes_per_s": \)10e9/\11e6/' "$machine" >slow
    expect 0 plan --net tiny --batch 8 --policy swap-async:when=always --facts slow --json row
    [[ $(value row iteration_seconds_predicted) == "${seconds[0]}" ]] ||
        fail "over such a link: $(value row iteration_seconds_predicted) s, with --link ${seconds[0]} s"
}

# with_algorithms FILE ALGORITHMS: writes the machine with these algorithms. Memory and launches take no time; 8192
# elements of output run at half the rate.
with_algorithms() {
    sed 's/"launch_ns": [0-9]*/"launch_ns": 0/; s/"memory_bytes_per_s": [0-9.e]*/"memory_bytes_per_s": 1e18/
        s/"codecs": {/"half_rate_elems": 8192, "algorithms": {'"${2//$'\n'/}"'}, &/' "$machine" >"$1"
}

# variants FILE LAYER PHASE: prints workspace and ns of each variant of the step, one variant a line.
variants() {
    awk -F '[:,]' -v layer="\"$2\"" -v phase="\"$3\"" '
        /"layer"/ { here = index($2, layer) }
        /"phase"/ { here = here && index($2, phase) }
        here && /"workspace_bytes"/ { workspace = $2 + 0 }
        here && /"ns"/ { print workspace, $2 + 0 }' "$1"
}

# tiny's second convolution: 8 channels of 16 x 16, 16 filters of 3 x 3; for 8 images 2359296 multiply-adds, and 32768
# elements of output, at 4/5 of the rate. A map has 16 tiles of 7 x 7, with results of 20 x 20.
a_machines_algorithms_are_variants_each_slower_and_with_less_workspace_() {
    local any='"waste": {"flops_per_s": 1.9e9, "workspace": {"im2col_images": 100}}, "least": {"flops_per_s": 1e9},
        "some": {"flops_per_s": 2e9, "workspace": {"im2col_images": 2}}, "slow": {"flops_per_s": 9e8}'
    local large='"large": {"kernel": 5, "flops_per_s": 8e9}, "strided": {"stride": 2, "flops_per_s": 9e9}'
    local tiled='"tiled": {"kernel": 3, "stride": 1, "flops_per_s": 4e9, "workspace": {"tile": 7, "tile_bytes": 144}}'
    local wide='"wide": {"flops_per_s": 3.9e9, "workspace": {"tile": 4, "tile_bytes": 64}}' expected facts
    with_algorithms fast "$any, $large, $tiled, $wide"
    expect 0 bench --simulate fast --net tiny --batch 8 --fuse off --policies liveness --facts facts --quiet
    expected="794624 1512369 460800 2304000 147456 2949120 0 5898240"
    [[ $(variants facts conv2 forward | xargs) == "$expected" ]] || fail "forward: $(variants facts conv2 forward)"
    expected="794624 3024738 460800 4608000 147456 5898240 0 11796480" # twice the forward time, for two gradients
    [[ $(variants facts conv2 backward | xargs) == "$expected" ]] || fail "backward: $(variants facts conv2 backward)"
    expect 0 bench --simulate fast --net tiny --freeze conv2 --batch 8 --fuse off --policies liveness --facts one --quiet
    expected="794624 1512369 460800 2304000 147456 2949120 0 5898240" # as forward: there is one gradient
    [[ $(variants one conv2 backward | xargs) == "$expected" ]] || fail "frozen: $(variants one conv2 backward)"
    # An algorithm with tiles writes and reads them, so it is not faster where memory is slow.
    sed 's/"memory_bytes_per_s": 1e18/"memory_bytes_per_s": 2e8/' fast >slow
    expect 0 bench --simulate slow --net tiny --batch 8 --fuse off --policies liveness --facts of_slow --quiet
    expected="147456 2949120 0 5898240"
    [[ $(variants of_slow conv2 forward | xargs) == "$expected" ]] || fail "slow: $(variants of_slow conv2 forward)"
    [[ $(variants facts conv1 forward) == "0 1382400" ]] || fail "other kernel: $(variants facts conv1 forward)"
    # Facts that --facts wrote give the same plans as the machine's rates, and the bound counts the least workspaces.
    for facts in fast facts; do
        expect 0 plan --net tiny --batch 8 --fuse off --policy naive,swap --facts $facts --explain --json $facts.rows
        # Not compared: rates of codecs that did not run, and the machine's name, which the written facts lack; and the
        # limit of pinned memory.
        grep -Ev '"(machine|seconds|encode_bytes_per_s|decode_bytes_per_s|pinned_limit_bytes)"' $facts.rows >$facts.known
    done
    equal fast.known facts.known
    with_algorithms least '"least": {"flops_per_s": 1e9}'
    expect 0 plan --net tiny --batch 8 --fuse off --policy naive,swap --facts least --json least.rows
    [[ $(values least.rows minimum_bytes) != "$(values fast.rows minimum_bytes)" ]] || fail "workspaces change no minimum"
    # The bound for one image counts its workspaces too; here it has none, since convolutions can do without.
    for batch in 8 1; do
        expect 0 plan --net tiny --batch $batch --fuse off --policy naive --facts least --explain --json of_$batch
    done
    [[ $(value of_8 lower_bound_bytes) == "$(value of_1 batch_lower_bound_bytes)" ]] || fail "the bound of one image differs"
    # If the machine's file has no algorithms, steps take the workspaces that the graph declares.
    expect 0 plan --net tiny --batch 8 --fuse off --policy naive --facts "$machine" --json plain
    expect 0 plan --net tiny --batch 8 --fuse off --policy naive --json declared
    [[ $(value plain minimum_bytes) == "$(value declared minimum_bytes)" ]] || fail "other workspaces"
}

# Each of 8 x 16 x 16 x 16 elements of input takes 16 x 2 x 2 multiply-adds; 131072 elements of output run at 16/17 of
# the rate.
a_transposed_convolution_takes_the_multiply_adds_of_its_input_() {
    with_algorithms least '"least": {"flops_per_s": 1e9}, "plain": {"flops_per_s": 9e9, "stride": 1}'
    expect 0 nets --net tiny --json
    local up='{"name": "up", "op": "conv_transpose", "inputs": ["dropout"], "out_channels": 16, "kernel": 2, "stride": 2}'
    sed 's/"tiny"/"up"/; s/\["dropout"\], "kernel": 4/["up"], "kernel": 8/; s/{"name": "avgpool"/'"$up"',&/' out >up.json
    expect 0 bench --simulate least --net file:up.json --batch 8 --fuse off --policies liveness --facts facts --quiet
    [[ $(variants facts up forward) == "0 4456448" ]] || fail "$(variants facts up forward)"
}

# One block of a GPT of width 64 with 2 rows of 32 tokens: c_attn gives 64 x 192 elements by 786432 multiply-adds, c_fc
# 64 x 256 by 1048576, the loss's scores are 64 x 256, and attention gives 64 x 64 by 131072.
small_products_and_attention_run_at_a_part_of_their_rates_() {
    local net=(--net "gpt,layers=1,width=64,heads=2,context=32" --batch 2 --fuse off) of expected
    sed 's/"launch_ns": [0-9]*/"launch_ns": 0/; s/"memory_bytes_per_s": [0-9.e]*/"memory_bytes_per_s": 1e18/
        s/"linear_flops_per_s": [0-9.e]*/"linear_flops_per_s": 1e9/' "$machine" >whole
    sed 's/"codecs": {/"linear_half_rate_elems": 12288, "attention_half_rate_elems": 4096, &/' whole >small
    sed 's/"codecs": {/"linear_half_rate_elems": 0, "attention_half_rate_elems": 0, &/' whole >none
    for of in whole small none; do
        expect 0 bench --simulate $of "${net[@]}" --policies liveness --facts $of.facts --quiet
    done
    equal whole.facts none.facts
    while read -r layer phase expected; do
        [[ $(variants small.facts "$layer" "$phase") == *" $expected" ]] ||
            fail "$layer $phase: $(variants small.facts "$layer" "$phase"), expected $expected ns"
    done <<END
h.0.attn.c_attn forward 3145728
h.0.attn.c_attn backward 6291456
h.0.mlp.c_fc forward 3670016
h.0.attn forward 524288
h.0.attn backward 1310720
loss forward 11010048
END
}

# On an H200 with these estimates, small batches are slower, and large ones hardly.
the_h200s_estimates_of_small_work_cost_small_batches_most_() {
    local batch seconds=()
    for batch in 2 128; do
        for file in "$h200" "$small"; do
            expect 0 plan --net resnet50 --batch $batch --policy liveness --facts "$file" --json row
            seconds+=("$(value row iteration_seconds_predicted)")
        done
    done
    awk "BEGIN { exit !(${seconds[1]} > 2 * ${seconds[0]} && ${seconds[3]} < 1.1 * ${seconds[2]}) }" ||
        fail "seconds: ${seconds[*]}"
    # Only in these three and the name the files differ.
    equal "$h200" <(sed '/half_rate_elems/d; s/h200-small-est/h200-est/' "$small")
}

# predicted PRECISION BUDGET POLICY MEASURED: predicted images/s of ResNet-50 at batch 128 are within a tenth of those
# measured on an H100. (fp32 ran on TF32 units, whose rates the file has.)
predicted() {
    expect 0 bench --simulate "$h100" --net resnet50 --batch 128 --precision "$1" --budgets "$2" --policies "$3" --quiet \
        --json rows
    awk -v told="$(values rows images_per_second)" -v seen="$4" 'BEGIN { exit !(told > 0.9 * seen && told < 1.1 * seen) }' ||
        fail "$3 in $2: predicted $(values rows images_per_second), measured $4 images/s"
}

what_an_h100_did_is_predicted_from_its_rates_() {
    predicted fp32 own liveness 3094
    predicted fp32 own freelunch:rate=4,when=always 2682
    predicted fp32 6.5GB recompute-swap 2795
    predicted fp32 6.5GB recompute:mode=sqrt 2792
    predicted fp32 6.5GB freelunch:rate=4,eligible=all 2701
    predicted fp32 6.5GB hybrid:rate=4 2498
    predicted bf16 own liveness 5693
    predicted bf16 3.5GB recompute-swap 5032
    predicted bf16 3.5GB recompute:mode=sqrt 5030
}

bad_algorithms_are_refused_() {
    of() { # ALGORITHMS TEXT
        with_algorithms bad "$1"
        refused 1 "machine file bad: $2" plan --net tiny --policy naive --facts bad
    }
    of '"fft": {}' "algorithms: fft: flops_per_s is missing"
    of '"fft": {"flops_per_s": 1}' "algorithms: fft: flops_per_s is 1, must be 1000 to 1e+18"
    of '"fft": {"flops_per_s": 1e9, "kernel": "3x3"}' "algorithms: fft: kernel is not a number"
    of '"fft": {"flops_per_s": 1e9, "stride": 0}' "algorithms: fft: stride is 0, must be 1 to 4096"
    of '"fft": {"flops_per_s": 1e9, "workspace": {}}' "algorithms: fft: workspace: tile is missing"
    of '"fft": {"flops_per_s": 1e9, "workspace": {"tile": 32}}' "algorithms: fft: workspace: tile_bytes is missing"
    of '"fft": {"flops_per_s": 1e9, "workspace": {"im2col_images": -1}}' "algorithms: fft: workspace: im2col_images is -1, must be 0 to"
    of "$(for i in {1..16}; do printf '"a%d": {"flops_per_s": 1e9}, ' "$i"; done)\"a17\": {\"flops_per_s\": 1e9}" \
        "algorithms: 17 entries, at most 16 are allowed"
    sed 's/"codecs": {/"half_rate_elems": -1, &/' "$machine" >bad
    refused 1 "machine file bad: half_rate_elems is -1, must be 0 to" plan --net tiny --policy naive --facts bad
    sed 's/"codecs": {/"linear_half_rate_elems": -1, &/' "$machine" >bad
    refused 1 "machine file bad: linear_half_rate_elems is -1, must be 0 to" plan --net tiny --policy naive --facts bad
    sed 's/"codecs": {/"attention_half_rate_elems": "few", &/' "$machine" >bad
    refused 1 "machine file bad: attention_half_rate_elems is not a number" plan --net tiny --policy naive --facts bad
}

a_plan_for_a_link_is_that_which_runs_over_it_() {
    local link policy key options=(--net resnet8 --batch 8)
    for link in 30MB 12GB; do
        for policy in recompute-swap hybrid; do
            expect 0 plan "${options[@]}" --policy $policy --budget 5MB --link $link --json planned
            expect 0 bench "${options[@]}" --policies $policy --budgets 5MB --link $link --iterations 1 --quiet --json ran
            for key in predicted_peak_bytes stash_bytes; do
                [[ $(value planned $key) == $(value ran $key) ]] ||
                    fail "$policy, $link: $key is $(value ran $key), planned was $(value planned $key)"
            done
        done
    done
}

run_cases
