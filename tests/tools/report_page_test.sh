#!/bin/bash
# mm report's page in a headless Chromium: what is drawn, and what answers to pointer and keys; in both themes, wide and
# narrow, what is measured and what is predicted; and a page of damaged files. Skipped where there is no Chromium
# ('tools/deps report' installs one).
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"
script=$(realpath "$2") titanx=$(realpath "$3")

# Files that pass for rows, plans and a trace, but have wrong types, missing parts, or numbers out of all bounds.
damaged_files() {
    cat >rows_bad.json <<'END'
[{"net": ["<b>"], "policy": {}, "batch": "many", "status": 7, "images_per_second": 1e308, "budget_bytes": 1},
 {"net": "n", "policy": "p", "batch": 1, "status": "ok", "images_per_second": 1e-300, "budget_bytes": 1e18},
 {"net": "n", "policy": "p", "batch": 2, "status": null, "images_per_second": -5, "budget_bytes": -1}]
END
    cat >plans_bad.json <<'END'
[{"net": "n", "policy": "p", "batch": 1, "status": "ok", "live_peak_bytes": 0, "memory": {"nodes": 3, "segments": [4]}},
 {"net": "n", "policy": "p", "batch": 1, "status": "ok", "live_peak_bytes": 0, "stashed_maps": [{"name": "m"}, 5],
  "memory": {"nodes": [{}, {"name": 9}, {"name": "x", "stream": "compute", "phase": "forward"}], "lasting": {"weights": "all", "y": 1e308},
   "segments": [{}, {"first": 9, "last": -3, "live_last": -9, "offset": 1e308, "bytes": 1e308, "name": "__proto__", "kind": "constructor"},
    {"first": 0, "live_last": 2, "dynamic": true, "bytes": 5, "action": "toString"}, {"pinned": true, "bytes": -4}, null],
   "maps": [{"name": "m", "actions": [1, null, "keep"], "readers": 5, "bytes": "x"}, {}]}}]
END
    cat >trace_bad.json <<'END'
{"traceEvents": [null, 3, {}, {"ph": "X", "ts": "now"}, {"ph": "X", "pid": 1, "tid": 2, "ts": 1e300, "dur": 1e308, "name": 4, "args": []},
 {"ph": "X", "pid": "a", "tid": {}, "ts": 0, "dur": -9, "args": {"iteration": 1}}, {"ph": "C", "pid": 1, "ts": 0, "name": "device memory"},
 {"ph": "C", "pid": 3, "ts": 5, "name": "memory", "args": {"codes": -1, "x": 1e308}}, {"ph": "f", "pid": 1, "ts": 0, "id": 1},
 {"ph": "s", "pid": "a", "tid": 7, "ts": 0, "id": []}, {"ph": "M", "name": "process_name", "pid": 1}, {"ph": "M", "name": "memory", "pid": 4, "args": 3},
 {"ph": "M", "name": "memory", "pid": 5, "args": {"nodes": [null, {}]}}], "otherData": 5}
END
}

# Prints simulated rows of 12 policies in two budgets: 21 that fit, the fastest beyond a round number.
many_rows() {
    local names=(naive late p{0..9}) budget i speed least status
    echo '['
    for budget in 60 30; do
        for i in "${!names[@]}"; do
            least=20 speed=$((525 - 20 * (i - 2))) status=ok
            [[ ${names[i]} != naive ]] || least=90
            [[ ${names[i]} != late ]] || least=50 speed=300
            ((least <= budget)) || speed=0 status="infeasible: needs more"
            printf '{"net": "n", "policy": "%s", "batch": 8, "status": "%s", "images_per_second": %d, "simulated": true, "device": "d",' \
                "${names[i]}" "$status" $speed
            printf '"budget_bytes": %d, "minimum_bytes": %d, "iteration_seconds_predicted": 0.1}' $((budget << 20)) $((least << 20))
            ((budget == 30 && i == ${#names[@]} - 1)) || echo ,
        done
    done
    echo ']'
}

page_draws_what_the_files_have_() {
    local policies=liveness,freelunch:when=always,swap-async:when=always evil="</script><script>window.ran=1</script>"
    python3 "$script" --find >/dev/null || skip "there is no Chromium"
    expect 0 bench --net resnet20 --batch 2,4 --policies $policies --iterations 2 --quiet --json rows.json --trace trace.json
    expect 0 plan --net resnet20 --batch 64 --policy $policies --explain --json plans.json
    sed "s|\"net\": \"resnet20\"|\"net\": \"$evil<img src=x onerror=window.ran=1>\"|" rows.json >evil.json
    expect 0 train --net tiny --batch 4 --iterations 12 --quiet --log log.csv
    expect 0 report rows.json evil.json plans.json trace.json log.csv --html page.html
    expect 0 bench --net resnet20 --batch 4 --policies liveness,freelunch:when=always --iterations 2 --quiet --predict --json predicted.json
    expect 0 bench --simulate "$titanx" --net resnet20 --batch 4 --policies $policies --budgets plans --quiet --json simulated.json
    expect 0 plan --net resnet20 --batch 4 --policy $policies --facts "$titanx" --explain --json plans2.json --trace planned.json
    expect 0 train --net tiny --batch 4 --iterations 12 --eval --eval-every 4 --budget 8MiB --policy liveness --quiet --log log.csv --json train.json --trace ran.json
    expect 0 train --net resnet8 --batch 4 --iterations 6 --switch 3:naive --budget 32MiB --policy liveness --quiet --log switched.csv --json switched.json
    expect 0 report predicted.json simulated.json plans2.json planned.json ran.json log.csv train.json switched.csv switched.json --html figures.html
    many_rows >many.json
    expect 1 plan --net resnet20 --batch 4 --policy liveness,swap-async --budget $(($(minimum resnet20 4 liveness) - 1)) --json plans3.json
    expect 0 report many.json plans3.json --html many.html
    damaged_files
    printf 'iteration,loss,accuracy,seconds\n1,nan,inf,0\n' >log_bad.csv
    expect 0 report rows_bad.json plans_bad.json trace_bad.json log_bad.csv --html damaged.html
    expect 0 plan --net gpt,layers=2 --batch 2 --optimizer adamw --update in-backward --pinned 3MiB --disk /nowhere:64MiB \
        --policy swap-async:when=always,resident=none --explain --json homes.json
    expect 0 report homes.json --html homes.html
    python3 "$script" page.html figures.html many.html damaged.html homes.html "$PWD" >said 2>&1 || fail "$(<said)"
}

run_cases
