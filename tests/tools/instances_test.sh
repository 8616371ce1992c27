#!/bin/bash
# instances_test.sh MM SCORE [all]: the scores of tiny instances, whose optimum is known; what is entered and what is
# refused. all: every instance's files are those of its checksums, and no plan is below its bound.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

score=$(realpath -s "$2")
tables=$(dirname "$score")
tiny="tiny-chain,tiny-skip,tiny-uneven"
which=${3:-tiny}

# scored STATUS ARGUMENT...: runs the command with the tables in the folder `tables`, which the test may change.
scored() {
    local status=0 expected=$1
    shift
    [[ -d tables ]] || { mkdir tables && cp "$tables"/*.csv tables && chmod u+w tables/*; }
    PYTHONDONTWRITEBYTECODE=1 "$score" --mm "$mm" --tables tables "$@" >out 2>err </dev/null || status=$?
    ((status == expected)) || fail "score $*: status $status, expected $expected"
}

# refuses TEXT ARGUMENT...: one line, on stderr.
refuses() {
    local text=$1 lines
    shift
    scored 1 "$@"
    says err "score: "
    says err "$text"
    mapfile -t lines <err
    if ((${#lines[@]} != 1)) || [[ -s out ]]; then fail "not one line"; fi
}

auto_finds_the_optimum_of_tiny_instances_() {
    local line
    scored 0 --instances $tiny --policies auto,rotor --json rows.json
    line=$(grep '^all  *auto ' out) || fail "no line of auto"
    [[ $line =~ \ 15/15\ +1\.000\ +1\.000$ ]] || fail "$line"
    (($(count rows.json '"by": "rotor"') == 15)) || fail "not a row for each budget of rotor"
    says out "where all fit"
    scored 0 --instances tiny-chain --policies liveness
    [[ $(grep '^all  *liveness ' out) =~ \ 0/5\ +-\ +-$ ]] || fail "liveness fits where it cannot"
}

searches_and_checksums_are_those_of_the_tables_() {
    scored 0 --renew --instances $tiny
    equal tables/instances.csv "$tables/instances.csv"
    [[ $(cut -d, -f1-5 tables/best.csv) == "$(cut -d, -f1-5 "$tables/best.csv")" ]] || fail "$(<tables/best.csv)"
    (($(count tables/best.csv ,search,) == 20)) || fail "not every tiny instance was searched"
}

a_better_plan_is_entered_once_and_a_worse_one_never_() {
    scored 0 --instances tiny-chain --policies knapsack,rotor --update
    says err "0 better plans entered"
    equal tables/best.csv "$tables/best.csv"
    sed -i 's/^\(tiny-chain,.*,\)\([0-9]*\),[a-z]*$/\19\2,slow/' tables/best.csv
    scored 0 --instances tiny-chain --policies auto --update
    says err "5 better plans entered"
    [[ $(cut -d, -f1-5 tables/best.csv) == "$(cut -d, -f1-5 "$tables/best.csv")" ]] || fail "$(<tables/best.csv)"
    scored 0 --instances tiny-chain --policies auto --update
    says err "0 better plans entered"
}

results_of_others_are_claims_() {
    local cell budget bound
    cell=$(grep -m1 '^tiny-skip,' "$tables/best.csv")
    IFS=, read -r _ budget bound _ <<<"$cell"
    printf 'instance,budget_bytes,seconds,by\ntiny-skip,%s,%se-9,mine\n' "$budget" "$((2 * bound))" >mine.csv
    scored 0 --instances tiny-skip --policies auto --results mine.csv --update --json rows.json
    says out "mine (claimed)"
    [[ $(grep '^tiny-skip  *mine' out) =~ \ 1/1\ +2\.000\ +2\.000$ ]] || fail "not the ratio that it claims"
    (($(count rows.json '"claimed": true') == 1)) || fail "not one claim"
    printf 'instance,budget_bytes,seconds,by\ntiny-skip,%s,1e-9,liar\n' "$budget" >mine.csv
    scored 0 --instances tiny-skip --policies auto --results mine.csv --update
    says out "liar claims 1e-09 s of tiny-skip in $budget bytes, below the bound of "
    equal tables/best.csv "$tables/best.csv"
    echo 'instance,budget_bytes,seconds' >mine.csv && echo "tiny-skip,$budget,soon" >>mine.csv
    refuses "mine.csv, line 2: is no result" --instances tiny-skip --results mine.csv
    echo 'instance,budget_bytes,seconds' >mine.csv && echo 'tiny-skip,1,1' >>mine.csv
    refuses "best.csv has no budget of 1 bytes of tiny-skip" --instances tiny-skip --results mine.csv
}

what_is_wrong_is_said_in_one_line_() {
    refuses "--instances nowhere: there is none; there are tiny-chain, " --instances nowhere
    refuses "hope" --instances tiny-chain --policies hope
    refuses "nowhere.csv: No such file" --instances tiny-chain --results nowhere.csv
    sed -i 's/^\(tiny-chain,.*\),[0-9a-f]*$/\1,0/' tables/instances.csv
    refuses "tiny-chain: its files are not those of instances.csv" --instances tiny-chain
    echo 'tiny-chain,none:it,,,0,,' >>tables/instances.csv
    refuses "source none:it: must be net:NET, or made: and one of ladder, " --instances tiny-chain
    echo 'one,two' >tables/instances.csv && echo '1,2' >>tables/instances.csv
    refuses "instances.csv, line 2: is no instance" --instances tiny-chain
}

exported_files_are_planned_to_the_best_time_() {
    local budget ns
    scored 0 --instances tiny-uneven --export files
    IFS=, read -r _ budget _ _ ns _ <<<"$(grep -m1 '^tiny-uneven,' "$tables/best.csv")"
    expect 0 plan --graph files/tiny-uneven.graph.json --facts files/tiny-uneven.facts.json --pinned 0 \
        --budget "$budget" --policy auto --json row.json
    [[ $(values row.json iteration_ns | sort -u) == "$ns" ]] || fail "$(values row.json iteration_ns), not $ns"
}

every_instance_has_its_files_and_no_plan_below_its_bound_() {
    [[ $which == all ]] || skip "instances_deep_test does it: --test_tag_filters=deep"
    scored 0 --policies auto,rotor,knapsack --json rows.json
    awk -F': ' '/"to_bound"/ && $2 != "null" && $2 + 0 < 0.999999 { print; bad = 1 } END { exit bad }' rows.json ||
        fail "a plan is faster than its bound"
    [[ $(grep '^all  *auto ' out) =~ \ ([0-9]+)/([0-9]+)\  ]] || fail "no line of auto"
    ((BASH_REMATCH[1] == BASH_REMATCH[2] && BASH_REMATCH[1] >= 140)) || fail "auto fits only ${BASH_REMATCH[0]}"
    (($(tail -n +2 "$tables/instances.csv" | wc -l) == 30)) || fail "not 30 instances"
}

# The program leaves out what only makes plans slower. So wherever a plan fits, it has a solution, and its bound is no
# higher than that plan's time.
no_plan_is_faster_than_the_programs_bound_() {
    python3 -c "import scipy" 2>/dev/null || skip "python3 has no scipy"
    local facts budget row
    facts=$tables/../facts/h200-estimated.json
    for budget in 8240000 9500000 12000000; do
        row=$("$tables/milp" --mm "$mm" --net gpt,layers=1 --batch 8 --facts "$facts" --budget "$budget" --seconds 20)
        bounds "$row"
    done
    row=$("$tables/milp" --mm "$mm" --net "file:$tables/cells/cell_multi.json" --batch 64 --facts "$facts" \
        --budget 2752768 --seconds 20)
    bounds "$row"
}

bounds() { # ROW
    [[ $1 == *'"status": "ok"'* && $1 =~ \"auto_us\":\ ([0-9.]+),.*\"milp_bound_us\":\ ([0-9.]+) ]] || fail "$1"
    is_less 1 "${BASH_REMATCH[2]}" && at_most "${BASH_REMATCH[2]}" "${BASH_REMATCH[1]}" "the program's bound"
}

run_cases
