#!/bin/bash
# plan_picture_test.sh MM: the pictures of mm plan are well-formed.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

policies=naive,liveness,freelunch:eligible=all

svg_shows_every_policy_the_budget_and_the_peak_() {
    expect 1 plan --net tiny --batch 32 --policy $policies --budget 4MiB --svg memory.svg
    balanced memory.svg
    for text in "<svg xmlns=" "tiny: device memory" "stashed maps" "gradient maps" ">forward<" ">backward<" \
        "class=\"budget\"" ">budget 4MiB<" "peak 3.24MiB: avgpool forward" "MiB</text>" "does not fit"; do
        says memory.svg "$text"
    done
    for class in head budget peak; do
        (($(count memory.svg "class=\"$class\"") == 3)) || fail "$(count memory.svg "class=\"$class\"") of $class"
    done
    expect 1 plan --net tiny --batch 32 --policy $policies --budget 4MiB --svg again.svg
    equal memory.svg again.svg
}

svg_without_a_budget_has_no_line_for_it_() {
    expect 0 plan --net tiny --policy liveness --svg memory.svg
    balanced memory.svg
    (($(count memory.svg "class=\"budget\"") == 0)) || fail "there is one"
}

svg_shows_homes_and_their_visits_() {
    local net=(--net "gpt,layers=4,width=64,heads=2,context=32,vocabulary=200" --batch 4 --optimizer adamw)
    expect 0 plan "${net[@]}" --policy swap-async:resident=none --pinned 2MiB --disk "$PWD:1GiB" --svg homes.svg
    balanced homes.svg
    for text in "Homes of weights and state" "weights in pinned memory: " "optimizer states on the disk: " \
        "class=\"visits\""; do
        says homes.svg "$text"
    done
    expect 0 plan "${net[@]}" --policy swap-async:resident=all,liveness --svg without.svg
    balanced without.svg
    [[ $(<without.svg) != *Homes* ]] || fail "homes, though all are on the device"
}

a_graph_of_ones_own_shows_the_same_homes_() {
    local -a within=(--policy swap-async:resident=none --pinned 2MiB --disk "$PWD:1GiB")
    expect 0 plan --net gpt --batch 2 --optimizer adamw "${within[@]}" --svg homes.svg --save-graph gpt.json
    expect 0 plan --graph gpt.json "${within[@]}" --svg own.svg --json own.json
    balanced own.svg
    grep -A99 "Homes of weights" homes.svg >homes
    grep -A99 "Homes of weights" own.svg >own
    equal homes own
    [[ $(<own) == *'class="visits"'* ]] || fail "no visits"
    says own.json '"home": "disk"'
}

svg_of_a_long_network_is_no_longer_than_its_pixels_() {
    expect 0 plan --net resnet1202 --policy liveness --svg memory.svg
    balanced memory.svg
    (($(stat -c %s memory.svg) < 200000)) || fail "$(stat -c %s memory.svg) bytes"
}

svg_spells_names_as_xml_does_() {
    expect 0 nets --net tiny --json
    mv out 'a&b<c>.json'
    expect 0 plan --net 'file:a&b<c>.json' --policy liveness --svg memory.svg
    balanced memory.svg
    says memory.svg 'a&amp;b&lt;c&gt;.json'
}

svg_that_cannot_be_written_is_refused_before_planning_() {
    refused 1 "nowhere/memory.svg: cannot be written" plan --net tiny --svg nowhere/memory.svg
    mkdir folder
    refused 1 "folder: cannot be written" plan --net tiny --svg folder
    refused 2 "--svg needs a value" plan --net tiny --svg
}

chart_is_ascii_unless_the_locale_is_utf8_() {
    expect 0 plan --net tiny --batch 32 --policy liveness --chart
    says out "S stashed maps"
    says out "^ peak 3.24MiB: avgpool forward"
    [[ ! $(<out) =~ [^[:print:][:space:]] ]] || fail "something else than ASCII"
    LC_ALL=C.UTF-8 expect 0 plan --net tiny --batch 32 --policy liveness --chart
    says out "▓ stashed maps"
    says out "▲ peak 3.24MiB: avgpool forward"
}

chart_is_shown_with_explain_on_a_terminal_() {
    command -v script >/dev/null || skip "no script to stand for a terminal"
    expect 0 plan --net tiny --policy liveness --explain
    [[ $(<out) != *"S stashed maps"* ]] || fail "shown without a terminal"
    script -qec "'$mm' plan --net tiny --policy liveness --explain" /dev/null >out </dev/null || fail "fails"
    says out "S stashed maps"
}

run_cases
