#!/bin/bash
# plan_test.sh MM MACHINE: mm plan tells what holds the memory and where the time goes, and its accounts add up.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
policies=naive,liveness,freelunch:eligible=all

# explained NET BATCH POLICY: runs mm plan with --explain; the row goes to row.json.
explained() { expect 0 plan --net "$1" --batch "$2" --policy "$3" --explain --json row.json; }

explain_tells_what_holds_the_memory_() {
    expect 0 plan --net tiny --batch 32 --policy $policies --explain
    for text in "declared  at the peak" "stashed feature maps" "weight gradients" "optimizer state" \
        "alive at the peak" "stashed maps of" "relu1.out, made by relu1 (relu)" "relu1 backward (sign)" \
        "as mask, because only the sign is read: 32KiB" "bn2 backward (value)" "recomputed (bn-relu)" "swapped: 0B" \
        "freelunch:eligible=all: mask" "lower bounds (moDNN, equation 7)" "weights offloaded" \
        "x less than naive"; do
        says out "$text"
    done
    expect 0 plan --net tiny --batch 32 --policy $policies --explain --fuse off
    says out "recomputed (bn,"
    expect 0 plan --net tiny --batch 32 --policy liveness
    [[ $(<out) != *declared* && $(<out) != *"than naive"* ]] || fail "explains without being asked"
}

what_was_decided_is_read_off_the_plan_() {
    local policy word maps n
    while read -r policy word; do
        explained resnet8 32 "$policy"
        says out "  ${word//_/ }"$'\n'
        maps=0
        for n in $(values row.json maps); do [[ $n == [0-9]* ]] && maps=$((maps + n)); done
        ((maps == $(count row.json '"decided_seconds"'))) || fail "$policy: decisions on $maps maps"
    done <<'EOF'
liveness keep
swap:when=always swap
recompute:mode=sqrt,when=always recompute
freelunch:eligible=all,when=always mask_and_compress
cdma:codec=zfp:rate=4,when=always compress-swap
gist:lossless,when=always mask
EOF
    explained resnet8 32 liveness
    [[ $(<out) != *"ms  swap"* && $(<out) != *"ms  recompute"* && $(<out) != *"stream "* ]] || fail "liveness acts"
}

an_iterations_time_is_told_by_where_it_goes_() {
    local policy sum key exposed busy
    local -a plan=(plan --net resnet8 --batch 32 --explain --json row.json)
    for policy in swap recompute-swap:mode=nested freelunch:eligible=all,when=always; do
        expect 0 "${plan[@]}" --policy "$policy" --facts "$machine"
        [[ $(<out) != *"nominal times"* ]] || fail "nominal times beside a machine's"
        sum=0
        for key in steps again slowed wait; do sum+=+$(value row.json ${key}_seconds); done
        awk "BEGIN { d = ($sum) / $(value row.json iteration_seconds_predicted); exit !(d > 0.98 && d < 1.001) }" ||
            fail "$policy: $sum s of $(value row.json iteration_seconds_predicted)"
        paste <(values row.json exposed_seconds) <(values row.json busy_seconds) >streams
        while read -r exposed busy; do at_most "$exposed" "$busy" "$policy, exposed"; done <streams
    done
    expect 0 "${plan[@]}" --policy swap
    says out "by nominal times"
    [[ $(value row.json iteration_seconds_predicted) == null ]] || fail "a prediction without facts"
}

more_memory_and_what_is_needed_at_the_peak_are_told_() {
    local need
    local -a plan=(plan --net resnet8 --batch 32 --policy swap --explain --json row.json)
    expect 0 "${plan[@]}" --facts "$machine"
    says out "less"
    need=$(value row.json minimum_bytes)
    at_most "$(value row.json iteration_seconds)" "$(value row.json in_place_of_seconds)" "in a larger budget"
    (($(values row.json bytes | grep -cx $((need / 10))) == 1)) || fail "not a tenth of $need more"
    expect 1 "${plan[@]}" --budget $((need - 256)) --facts "$machine"
    says out "it fits then"
    expect 1 "${plan[@]}" --budget $((need / 2)) --facts "$machine"
    says out "it does not fit either"
    says out "the peak is at "
    expect 0 plan --net resnet8 --batch 32 --policy liveness --explain
    says out "that wait for other"
    # One step uses nearly everything that is in memory at the peak.
    expect 0 plan --net vgg11@32x32,classes=10,thin=4 --batch 64 --policy swap:when=always --explain --json row.json
    says out "swapping cannot help: the peak is at"
}

# speed TYPE CODEC: prints the GB/s that `out` says of the codec's encoding of TYPE.
speed() { sed -n "s|^ *$1 .*encode *\([0-9.]*\) GB/s.*  $2 (lossy)\$|\1|p" out; }

codecs_are_told_by_the_type_of_elements_() {
    local -a plan=(plan --net resnet8 --batch 32 --policy auto:codecs=zfp:rate=4 --explain --json row.json)
    expect 0 "${plan[@]}" --facts "$machine"
    grep -Eq '^ +f32 +8.00x  encode .* GB/s, decode .* GB/s  zfp:rate=4 \(lossy\)$' out || fail "not of f32"
    [[ $(values row.json type | sort -u) == f32 ]] || fail "types: $(values row.json type)"
    expect 0 "${plan[@]}" --facts "$machine" --precision bf16
    grep -Eq '^ +bf16 +4.00x .*  zfp:rate=4 \(lossy\)$' out || fail "not of bf16"
    local any
    any=$(speed bf16 zfp:rate=4)
    sed 's/"codecs": {/"types": {"bf16": {"codecs": {"zfp:rate=4": {"encode_bytes_per_s": 1e9, "decode_bytes_per_s": 2e9}}}},\n&/' \
        "$machine" >by_type.json
    expect 0 "${plan[@]}" --facts by_type.json --precision bf16
    is_less "$(speed bf16 zfp:rate=4)" 1.01 || fail "$(speed bf16 zfp:rate=4) GB/s, not what the type's rates say"
    is_less 5 "$any" || fail "$any GB/s by the rates of any type"
    expect 0 "${plan[@]}" --precision bf16
    says out "element type, by nominal times"
}

kinds_add_up_to_what_the_plan_needs_() {
    for net in tiny resnet20; do
        for policy in naive liveness freelunch freelunch:buffers=naive,workspace=naive; do
            explained $net 16 $policy
            local bytes sum=0 idle=0
            for bytes in $(values row.json at_peak_bytes); do sum=$((sum + bytes)) idle=$bytes; done
            ((sum == $(value row.json minimum_bytes))) || fail "$net, $policy: $sum bytes in all"
            ((sum - idle == $(value row.json live_peak_bytes))) || fail "$net, $policy: $((sum - idle)) bytes alive"
        done
    done
}

lower_bounds_are_below_every_minimum_() {
    for net in tiny resnet20; do
        for policy in naive liveness freelunch:eligible=all; do
            explained $net 1 $policy
            (($(value row.json lower_bound_bytes) <= $(value row.json minimum_bytes))) || fail "$net, $policy: batch 1"
            explained $net 64 $policy
            (($(value row.json batch_lower_bound_bytes) <= $(value row.json minimum_bytes))) ||
                fail "$net, $policy: batch 64"
            (($(value row.json lower_bound_bytes) < $(value row.json batch_lower_bound_bytes))) ||
                fail "$net: the bound does not grow with the batch"
            (($(value row.json lower_bound_offloaded_bytes) < $(value row.json lower_bound_bytes))) ||
                fail "$net: offloading weights gains nothing"
        done
    done
}

pools_of_codes_are_told_with_their_spill_() {
    local policy text nominal
    expect 0 plan --net resnet20 --batch 32 --policy "rules:*=compress(zvc),when=always" --json row.json
    for text in "pool of codes, reserve" "spill, pinned" "codes take at most"; do says out "$text"; done
    (($(value row.json reserve_bytes) + $(value row.json spill_bytes) >= $(value row.json bound_bytes))) ||
        fail "bodies have no room"
    nominal=$(value row.json reserve_bytes)
    expect 0 plan --net resnet20 --batch 32 --policy "rules:*=compress(zvc:reserve=10),when=always" --json row.json
    (($(value row.json reserve_bytes) * 4 < nominal)) || fail "reserve=10 reserves $(value row.json reserve_bytes)"
    expect 0 plan --net resnet20 --batch 32 --policy "rules:*=compress(eb:reserve=100:abs=0.01),when=always"
    [[ $(<out) != *"spill, pinned"* ]] || fail "all is reserved, and it spills"
    for policy in "zvc:reserve=0" "zvc:reserve=101" "eb:abs=0" "eb:abs=nan" "eb:abs=-1" "zvc:bits=2"; do
        refused 2 "codec ${policy%%:*}: " plan --net resnet20 --batch 32 --policy "rules:*=compress($policy),when=always"
    done
}

what_moves_over_the_link_is_told_of_all_passes_() {
    local once
    expect 0 plan --net vgg11@32x32,classes=10,thin=4 --batch 8 --policy swap:when=always --json row.json
    says out "moved over the link"
    once=$(value row.json moved_bytes)
    (($(value row.json offloads) > 0 && $(value row.json prefetches) == $(value row.json offloads))) ||
        fail "$(value row.json offloads) offloads, $(value row.json prefetches) prefetches"
    ((once == 2 * $(value row.json pinned_bytes))) || fail "$once bytes of $(value row.json pinned_bytes) pinned"
    expect 0 plan --net vgg11@32x32,classes=10,thin=4 --batch 40 --sub-batch 8 --policy swap:when=always --json row.json
    (($(value row.json moved_bytes) == 5 * once)) || fail "$(value row.json moved_bytes) bytes in 5 passes"
    expect 0 plan --net tiny --batch 8 --policy liveness --json row.json
    (($(value row.json moved_bytes) == 0 && $(value row.json offloads) == 0)) || fail "liveness moves maps"
    [[ $(<out) != *"over the link"* ]] || fail "says so, and moves nothing"
}

every_network_can_be_explained_() {
    local name rest names=()
    expect 0 nets
    while read -r name rest; do
        [[ $name == *[:\<]* || $name == resnet???* ]] || names+=("$name")
    done <out
    ((${#names[@]} > 5)) || fail "${#names[@]} networks"
    for name in "${names[@]}"; do
        explained "$name" 2 liveness
        (($(value row.json batch_lower_bound_bytes) <= $(value row.json minimum_bytes))) || fail "$name: below its bound"
        says out "made by "
    done
}

tensors_above_two_gibibytes_are_planned_() {
    expect 0 plan --net resnet20 --batch 1048576 --policy liveness --explain --json row.json
    (($(value row.json minimum_bytes) > 1 << 40)) || fail "$(value row.json minimum_bytes) bytes"
    says out "64GiB  conv1.out"
}

a_policy_of_any_length_is_planned_and_named_in_full_() {
    local rules i stars=
    rules=rules:
    for ((i = 1; i <= 12; i++)); do rules+="conv$stars=compress(zfp:rate=$i);" stars+='*'; done
    for ((i = 0; i < 20; i++)); do rules+="fc$stars=swap;" stars+='*'; done
    rules+='*=swap'
    expect 0 plan --net tiny --batch 4 --policy "$rules" --json row.json
    [[ $(value row.json policy) == "$rules" ]] || fail "$(value row.json policy)"
    expect 0 bench --net tiny --batch 4 --iterations 1 --quiet --policies "liveness,$rules,when=always" --json rows
    [[ $(values rows policy | tail -1) == "$rules,when=always" && $(values rows status | tail -1) == ok ]] || fail "$(<rows)"
}

run_cases
