#!/bin/bash
# The largest input that each parser accepts: what is larger is refused by name, at once; the largest is served within
# bounds of CPU time and memory. Slow ones are tried with MM_TEST_DEEP only.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

plan=(plan --batch 1 --policy liveness --threads 1)

# served SECONDS ARGUMENT...: mm ends well within so much CPU time, and 3 GiB of addresses, of which code and threads
# take two.
served() {
    (ulimit -c 0 && ulimit -t "$1" && ulimit -v 3000000 && expect 0 "${@:2}") || exit 1
}

# Seconds of CPU for a refusal, far more than it takes.
refused_at_once() { # STATUS TEXT ARGUMENT...
    (ulimit -c 0 && ulimit -t 5 && refused "$@") || exit 1
}

is_deep() { [[ -n ${MM_TEST_DEEP-} ]]; }

# net HEIGHT WIDTH LAYERS: prints a network file whose last layer before the classifier is "x".
net() {
    echo '{"format": "mm net", "version": 1, "name": "n",'
    echo "\"input\": {\"height\": $1, \"width\": $2, \"channels\": 3, \"classes\": 10}, \"layers\": [$3"
    echo '{"name": "fc", "op": "linear", "inputs": ["x"], "out_channels": 10},'
    echo '{"name": "loss", "op": "loss", "inputs": ["fc"]}]}'
}

# one HEIGHT WIDTH OP ATTRIBUTES: the same, of one operation.
one() { net "$1" "$2" "{\"name\": \"x\", \"op\": \"$3\", \"inputs\": [\"data\"]${4:+, $4}},"; }

# Without limits: minutes, gigabytes, or a division by zero in oneDNN.
windows_that_take_long_to_prepare_() {
    local conv='"out_channels": 4, "kernel": 3, "pad": 1' text="oneDNN cannot prepare, in a second and 200 MiB, windows"
    one 8 8 conv '"out_channels": 4, "kernel": [1, 16777216], "pad": [0, 16777216]' >kernel.json
    refused_at_once 1 "$text of 1x16777216 over images of 8x8" "${plan[@]}" --net file:kernel.json
    one 8 8 conv '"out_channels": 4, "kernel": 1024, "pad": 1024' >square.json
    refused_at_once 1 "$text of 1024x1024" "${plan[@]}" --net file:square.json
    one 8 8 conv '"out_channels": 4, "kernel": 3, "dilation": 1048576, "pad": 1048576' >dilated.json
    refused_at_once 1 "padded to rows of 2097160" "${plan[@]}" --net file:dilated.json
    one 8 131072 conv "$conv" >wide.json
    refused_at_once 1 "padded to rows of 131074" "${plan[@]}" --net file:wide.json
    one 1 16777216 global_avg_pool >pool.json
    refused_at_once 1 "$text of 1x16777216" "${plan[@]}" --net file:pool.json
    one 16384 16384 global_avg_pool >square_pool.json
    refused_at_once 1 "$text of 16384x16384" "${plan[@]}" --net file:square_pool.json
    one 8 131070 conv "$conv" >widest.json
    served 5 "${plan[@]}" --net file:widest.json
    one 8 1048576 max_pool '"kernel": 2' >widest_pool.json
    served 5 "${plan[@]}" --net file:widest_pool.json
    one 8 8 conv '"out_channels": 4, "kernel": 400, "pad": 400' >largest.json
    served 5 "${plan[@]}" --net file:largest.json
}

chain() { # N: N layers
    local i last=data
    for ((i = 4; i < $1; i++)); do
        echo "{\"name\": \"r$i\", \"op\": \"relu\", \"inputs\": [\"$last\"]},"
        last=r$i
    done
    echo "{\"name\": \"x\", \"op\": \"relu\", \"inputs\": [\"$last\"]},"
}

layers_() {
    net 8 8 "$(chain 65537)" >long.json
    refused_at_once 1 "net n: more than 65536 layers" nets --net file:long.json
    refused_at_once 2 "more than 65536 layers" "${plan[@]}" --net resnet-bottleneck:4096,4096
    is_deep || return 0
    net 8 8 "$(chain 65536)" >longest.json
    served 20 "${plan[@]}" --net file:longest.json
    served 20 "${plan[@]}" --net cifar-resnet12002
    served 20 "${plan[@]}" --net gpt,layers=1024,width=65536,heads=65536,context=1048576,vocabulary=16777216
}

distinct() { # N: N convolutions of shapes that differ
    local i last=data
    for ((i = 1; i < $1; i++)); do
        echo "{\"name\": \"c$i\", \"op\": \"conv\", \"inputs\": [\"$last\"], \"out_channels\": $i, \"kernel\": 1},"
        last=c$i
    done
    echo "{\"name\": \"x\", \"op\": \"conv\", \"inputs\": [\"$last\"], \"out_channels\": $i, \"kernel\": 1},"
}

different_operations_() {
    is_deep || return 0
    net 2 2 "$(distinct 2047)" >more.json
    (ulimit -t 60 && refused 1 "more than 2048 layers differ in operation or shape" "${plan[@]}" --net file:more.json) ||
        exit 1
    net 2 2 "$(distinct 2046)" >most.json
    (ulimit -t 60 && expect 0 "${plan[@]}" --net file:most.json) || exit 1 # 450 MB, in 6 GB of addresses
}

# lists N: prints N empty lists, which take the most memory for their characters.
lists() { printf '%s' "$(yes '[],' | head -n "$1" | tr -d '\n')" '[]'; }

json_that_would_take_much_memory_() {
    local text="its values would take more than 1024 MiB of memory"
    printf '[%s]' "$(lists 4580000)" >big
    refused_at_once 1 "facts file big, line 1: $text" plan --net tiny --facts big
    refused_at_once 1 "$text" nets --net file:big
    refused_at_once 2 "big, line 1: $text" report big --html page.html
    refused_at_once 1 "study file big, line 1: $text" plan --net tiny --facts "$titanx" --study big
    (printf '{"a":' && cat big && printf '}') >header
    (printf '%b' "$(printf '%016x' "$(stat -c %s header)" | sed 's/../\\x&\n/g' | tac | tr -d '\n')" && cat header) >state
    refused_at_once 1 "header, byte 0: $text" train --net tiny --load state
    is_deep || return 0
    printf '[%s]' "$(lists 4500000)" >less
    (ulimit -t 20 && ulimit -v 3000000 && refused 1 "facts file less: its format" plan --net tiny --facts less) || exit 1
    (ulimit -t 20 && ulimit -v 3000000 && refused 2 "less: neither" report less --html page.html) || exit 1
}

# A table has room for each codec of each tensor.
facts_() {
    local head='{"format": "mm facts", "version": 1, "graph": {"steps": 0, "tensors": 0, "tensor_bytes": 0}, "link":
        {"out_bytes_per_s": 1, "in_bytes_per_s": 1, "out_both_bytes_per_s": 1, "in_both_bytes_per_s": 1},
        "contention_permille": 0, "issue_ns": 0, "steps": [], "codecs": ['
    (echo "$head" && seq 1025 | sed 's/.*/{"spec": "c&", "codes": {}},/' && echo '{}]}') >codecs
    refused_at_once 1 "1026 codecs and 0 tensors: there must be at most 1024 codecs" plan --net tiny --facts codecs
    (echo "$head" && seq 1000 | sed 's/.*/{"spec": "c&", "codes": {"t&": {}}},/' && seq 4000 |
        sed '1s/^/{"spec": "c", "codes": {/; s/\([0-9]*\)$/"u\1": {},/; $s/,$/}}/' && echo ']}') >codes
    refused_at_once 1 "1001 codecs and 5000 tensors" plan --net tiny --facts codes
}

rules() { # N: a policy of N rules
    printf 'rules:%s*=swap' "$(seq $(($1 - 1)) | sed 's/.*/conv\&a&=swap/' | tr '\n' ';')"
}

rules_() {
    refused_at_once 2 "4097 rules: at most 4096 are allowed" "${plan[@]:0:3}" --net tiny --policy "$(rules 4097)"
    # accepted by the parser: the network lacks the layers
    refused_at_once 2 "rule 'conv&a1=...': graph tiny train 1 has no such layer" "${plan[@]:0:3}" --net tiny --policy "$(rules 4096)"
}

data_() {
    local gpt=(train --net "gpt,layers=1,width=16,heads=2,context=8" --batch 1 --iterations 1 --threads 1 --quiet)
    truncate -s 2T words
    refused_at_once 1 "samples, must be at most 134217728" "${gpt[@]}" --data text:words
    refused_at_once 2 "N from 1 to 134217728" train --net tiny --data synthetic:samples=134217729
    is_deep || return 0
    truncate -s 1193046471 words
    served 60 "${gpt[@]}" --data text:words
}

titanx=$(realpath "$2")
(ulimit -v 3000000 && "$mm" nets >/dev/null 2>&1) || ulimit() { [[ $1 == -v ]] || builtin ulimit "$@"; }
run_cases
