#!/bin/bash
# plan_saved_test.sh MM: a plan that the command writes is text that a few lines of Python read; run from the
# file, it gives the same weights, bit for bit; and what it was not made for is refused by name.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

train() { expect 0 train --net tiny --batch 8 --iterations 2 --quiet "$@"; }

a_plan_runs_from_its_file_with_the_same_bits_() {
    train --policy swap-async:when=always --save-plan own.jsonl --save own
    train --plan own.jsonl --save-plan again.jsonl --save again
    equal_tensors own again
    tail -n +2 own.jsonl >own.rest
    tail -n +2 again.jsonl >again.rest
    equal own.rest again.rest
    expect 0 plan --net tiny --batch 8 --policy swap-async:when=always --save-plan planned.jsonl
    equal own.jsonl planned.jsonl
    expect 0 plan --net tiny --batch 8 --policy plan:planned.jsonl
    says out "plan:planned.jsonl"
}

a_plan_has_the_graphs_of_evaluation_and_of_sub_batches_() {
    train --policy liveness:resident=none --eval --sub-batch 3 --save-plan own.jsonl --save own
    [[ $(count own.jsonl '"format": "mm plan"') == 5 ]] || fail "not a plan for each of three passes, and two to evaluate"
    train --plan own.jsonl --eval --sub-batch 3 --save again
    equal_tensors own again
    train --policy liveness --switch 1:plan:own.jsonl --sub-batch 3 --save switched
    equal_tensors own switched
}

what_the_plan_is_not_for_is_refused_() {
    expect 0 plan --net tiny --batch 8 --policy liveness --save-plan own.jsonl
    refused 2 "has no plan of the graph tiny train 4" train --net tiny --batch 4 --plan own.jsonl
    refused 2 "its graph tiny train 8 has another " train --net tiny --batch 8 --fuse off --plan own.jsonl
    refused 1 "needs at least" train --net tiny --batch 8 --plan own.jsonl --budget 64KiB --no-ladder
    refused 2 "--plan and --policy: give one of them" train --net tiny --plan own.jsonl --policy swap
    refused 1 "none.jsonl: cannot be read" train --net tiny --plan none.jsonl
    refused 2 "give a file: plan:FILE" plan --net tiny --policy plan
    sed 's/"number": 3,/"number": 4,/' own.jsonl >wrong.jsonl
    expect 1 train --net tiny --batch 8 --plan wrong.jsonl
    says err "on its stream where 3 is due"
    head -n 40 own.jsonl >short.jsonl
    refused 1 "short.jsonl: line 41, the end: there are" train --net tiny --batch 8 --plan short.jsonl
}

a_few_lines_of_python_read_it_() {
    command -v python3 >/dev/null || skip "there is no python3"
    train --policy freelunch:rate=4,when=always --save-plan own.jsonl
    python3 - >counts <<'END' || fail "python cannot read it"
import json
plans = []
for line in map(json.loads, open("own.jsonl")):
    if "is" not in line:
        plans.append({"header": line})
    else:
        plans[-1].setdefault(line["is"], []).append(line)
(plan,) = plans
(totals,) = plan["plan"]
(graph,) = plan["graph"][0]["graphs"]
assert totals["segments"] == len(plan["segment"]) and totals["nodes"] == len(plan["node"])
assert totals["pieces"] == len(plan["piece"]) and len(plan["variants"]) == len(graph["steps"])
done = {}
for piece in plan["piece"]:  # each waits for what was issued before it
    stream = plan["node"][piece["node"]]["stream"]
    assert piece["number"] == done.get(stream, 0)
    assert all(number < done.get(other, 0) for other, number in piece["waits"].items())
    done[stream] = piece["number"] + 1
print(sorted({node["kind"] for node in plan["node"]}))
END
    says counts "['decode', 'encode', 'step']"
}

run_cases
