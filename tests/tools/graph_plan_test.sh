#!/bin/bash
# graph_plan_test.sh MM EXAMPLE_EMBED PLAN_ONLY README: mm plan --graph plans what a program of one's own wrote, and
# says of it what the program sees. The example tools/examples/09-plan-only prints what its README shows.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

embed=$(realpath "$2")
only=$(realpath "$3")
readme=$(realpath "$4")

# Runs the example that embeds mm, which writes its graphs to graphs.json.
embedded() { MM_SAVE_GRAPH=graphs.json "$embed" "$@" >out 2>err || fail "example_embed $*: status $?"; }

what_a_program_wrote_is_planned_with_its_figures_() {
    local peak least
    embedded liveness 0 2
    peak=$(sed -n 's/^budget \([0-9]*\), predicted peak \1,.*/\1/p' out) # of the policy that is set half-way
    expect 0 plan --graph graphs.json --policy freelunch:codec=raw,eligible=all,when=always --json row.json
    mapfile -t least < <(values row.json least_bytes) # of both graphs together, then of each
    [[ ${least[0]} == "$peak" ]] || fail "needs ${least[0]}, not $peak"
    says out "example 1 of 2 and 1 more, freelunch:codec=raw,eligible=all,when=always: needs "
    says out "  example 2 of 2 "
    says out "    held by "
    says out "      codes "
}

a_budget_is_judged_and_a_policy_is_advised_() {
    embedded liveness
    expect 0 plan --graph graphs.json --policy liveness --budget 400000
    says out "fits 391KiB"
    expect 1 plan --graph graphs.json --policy naive --budget 300000
    says out "does not fit 293KiB"
    says out "naive on example 1 of 1 needs at least "
    says out "; policy liveness would fit"
    expect 1 plan --graph graphs.json --policy naive,liveness --budget 300000
    [[ $(<out) != *"would fit"* ]] || fail "advice beside a policy that fits"
    expect 1 plan --graph graphs.json --policy naive,liveness --budget 5000
    says out "no policy would fit: auto needs least"
}

files_are_pictures_pages_and_rows_() {
    embedded liveness 400000 2
    expect 0 plan --graph graphs.json --policy naive,liveness --budget 400000 --svg memory.svg --html page.html \
        --json rows.json --chart
    says out "^ peak "
    says memory.svg "<title>graphs.json: device memory over one iteration, predicted for host</title>"
    says memory.svg "liveness, example "
    says memory.svg "budget 391KiB"
    says page.html "<svg "
    says page.html "example 1 of 2 and 1 more, liveness: fits 391KiB"
    says page.html "</html>"
    [[ $(count rows.json '"least_bytes"') == 6 ]] || fail "not a row for each policy, and one for each graph in it"
    [[ $(count rows.json '"fits": true') == 2 ]] || fail "$(<rows.json)"
    [[ $(count rows.json '"step"') == 28 ]] || fail "not an entry for each step"
    expect 0 plan --graph graphs.json --policy liveness --json -
    says out '"held_by": "'
    says err "liveness: needs "
}

options_of_networks_are_refused_() {
    embedded liveness
    refused 2 "--batch: is not for --graph" plan --graph graphs.json --batch 3
    refused 2 "--net: is not for --graph" plan --graph graphs.json --net tiny
    refused 2 "--explain: is not for --graph" plan --graph graphs.json --explain
    refused 2 "name the same file" plan --graph graphs.json --json graphs.json
    refused 2 "hope" plan --graph graphs.json --policy hope
    refused 1 "cannot be read" plan --graph nowhere.json
    echo '{"format": "mm graph", "version": 7}' >later.json
    refused 1 "is of version 7" plan --graph later.json
    refused 1 '"format" is not "mm graph"' plan --graph <(echo '{}')
}

a_networks_saved_graph_and_facts_give_its_figures_() {
    local -a net=(plan --net tiny --batch 8 --fuse on --facts T4 --budget 4MiB --pinned 1GiB --policy auto)
    expect 0 "${net[@]}" --save-graph tiny.json --save-facts facts.json --json net.json
    expect 0 plan --graph tiny.json --facts facts.json --budget 4MiB --pinned 1GiB --policy auto --json row.json
    says out "  bound  "
    seconds() { awk -v ns="$1" -v s="$2" 'BEGIN { exit !(ns > 0 && (ns - s * 1e9) ^ 2 < 1) }'; }
    seconds "$(values row.json iteration_ns | head -1)" "$(value net.json iteration_seconds_predicted)" ||
        fail "another time: $(values row.json iteration_ns)"
    seconds "$(value row.json bound_ns)" "$(value net.json bound_seconds)" ||
        fail "another bound: $(value row.json bound_ns)"
    refused 2 "--save-facts: needs --facts" plan --net tiny --save-facts facts.json
    expect 2 plan --net tiny --batch 8 --sub-batch 3 --policy liveness --save-graph none.json
    says err "--save-graph: is for whole batches; this one has 3 graphs, one a pass"
    [[ ! -e none.json ]] || fail "a file all the same"
    expect 1 plan --graph tiny.json --policy naive --budget 300KiB --no-advice
    [[ $(<out) != *"would fit"* ]] || fail "advice that was not asked for"
}

networks_have_a_page_too_() {
    expect 0 plan --net tiny --batch 8 --policy liveness,naive --html page.html
    says page.html "<title>tiny: device memory over one iteration, predicted for host</title>"
    says page.html "tiny, batch 8, liveness: needs"
    says page.html "liveness needs "
    says page.html "<svg "
    says page.html "</html>"
}

the_example_prints_what_its_readme_shows_() {
    local status=0
    "$only" 16777216 saved.json >out 2>err || status=$?
    ((status == 0)) || fail "plan_only: status $status"
    [[ ! -s err ]] || fail "something on stderr"
    awk '/^```sh$/ { shell = 1; next } /^```$/ { inside = !inside && !shell; shell = 0; next } inside' "$readme" >shown
    diff shown out || fail "the README shows something else"
    expect 0 plan --graph saved.json --policy liveness --svg memory.svg
    says out "training and 1 more, liveness: needs 19.0MiB"
    says memory.svg "liveness, training"
}

run_cases
