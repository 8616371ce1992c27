#!/bin/bash
# mm report without a browser: what it accepts and refuses; the page has the data, and none of it can run as a script.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

rows() { expect 0 bench --net tiny --batch 4 --policies liveness,swap-async --iterations 2 --quiet --json "$1"; }
plans() { expect 0 plan --net tiny --batch 4 --policy liveness,swap-async:when=always --explain --json "$1"; }

# Prints the data of a page, as JSON.
data_of() { # PAGE
    sed -n '/<script type="application\/json" id="data">/,/<\/script>/p' "$1" | sed '1d;$d'
}

a_page_has_what_the_files_have_() {
    rows rows.json
    plans plans.json
    echo '{"traceEvents": [], "otherData": {"dropped": 3}}' >trace.json
    echo '[{"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 2.5, "name": "conv forward"}]' >events.json
    expect 0 report rows.json plans.json trace.json events.json --html page.html
    [[ ! -s out && ! -s err ]] || fail "it says something"
    data_of page.html >data
    python3 - <<'END' || fail "the page's data are others than the files'"
import json
data = json.load(open("data"))
assert [file["kind"] for file in data["files"]] == ["rows", "plans", "trace", "trace"], data
for file in data["files"]:
    assert file["data"] == json.load(open(file["name"])), file["name"]
END
    # The page needs nothing else: it names no other file and no address.
    [[ $(<page.html) == '<!doctype html>'*'</html>' ]] || fail "not a whole page"
    for text in http:// https:// "src=" "@import" "url("; do
        (($(sed 's/http:\/\/www.w3.org\/2000\/svg//' page.html | grep -cF -- "$text") == 0)) || fail "it has $text"
    done
    # An old file is replaced; options may stand anywhere.
    echo '[' >page.html
    expect 0 report --html=page.html rows.json
    says page.html '"kind":"rows"'
}

a_log_becomes_part_of_the_page_() {
    expect 0 train --net tiny --batch 4 --iterations 5 --quiet --budget 4MiB --policy liveness --log log.csv \
        --lr-schedule cosine --switch 2:naive
    printf '6,0.5' >>log.csv # the run may still write this line
    expect 0 report log.csv --html page.html
    data_of page.html >data
    python3 - <<'END' || fail "the page's data are others than the log's"
import csv, json
[log] = json.load(open("data"))["files"]
lines = list(csv.reader(open("log.csv")))
assert log["kind"] == "log" and log["data"]["columns"] == lines[0], log
assert log["data"]["lines"] == [[float(v) for v in line] for line in lines[1:6]], log
assert log["data"]["lines"][0][6] < log["data"]["lines"][4][6], "naive needs more than liveness"
END
    expect 0 train --net tiny --batch 4 --iterations 5 --quiet --eval --eval-every 2 --log tested.csv --json tested.json
    expect 0 report tested.csv --html page.html
    data_of page.html >data
    python3 - <<'END' || fail "the page's evaluations are others than the log's"
import json
log = json.load(open("data"))["files"][0]["data"]
assert log["columns"][7:] == ["test_loss", "test_accuracy"], log
assert [line[0] for line in log["lines"]] == [1, 2, 2, 3, 4, 4, 5, 5], log
tests = [line for line in log["lines"] if line[8] is not None]
assert [line[:7] for line in tests] == [[n] + [None] * 6 for n in (2, 4, 5)], tests
assert all(None not in line[:7] and line[7:] == [None, None] for line in log["lines"] if line not in tests), log
assert abs(tests[-1][8] - json.load(open("tested.json"))[0]["test_accuracy"]) < 1e-4, tests
END
    printf 'iteration,loss,accuracy,seconds\n1,nan,0.5,inf\n' >old.csv
    expect 0 report old.csv --html page.html
    says page.html '[1.0,null,0.5,null]'
    printf 'iteration,loss,accuracy,seconds\n1,2,3\n' >short.csv
    refused 2 "short.csv: line 2: no 4 numbers" report short.csv --html page.html
    printf 'iteration,loss,accuracy,seconds\n1,two,3,4\n' >words.csv
    refused 2 "words.csv: line 2: no 4 numbers" report words.csv --html page.html
}

names_in_a_file_do_not_become_part_of_the_page_() {
    rows rows.json
    sed 's|"net": "tiny"|"net": "</script><script>document.title = 1</script><!--<script>"|' rows.json >bad.json
    expect 0 report bad.json --html page.html
    (($(count page.html "<script") == 2 && $(count page.html "</script") == 2)) || fail "a name became an element"
    (($(count page.html "<!--") == 0)) || fail "a name became a comment"
    data_of page.html >data
    python3 -c 'import json
for row in json.load(open("data"))["files"][0]["data"]:
    assert row["net"] == "</script><script>document.title = 1</script><!--<script>"' || fail "a name is another"
}

other_files_are_refused_by_name_() {
    rows rows.json
    local why="neither rows ('mm train' or 'mm bench' --json), nor plans ('mm plan --json'), nor a trace (--trace), nor a log ('mm train --log')"
    for text in '{}' '[]' '[1, 2]' '[{"net": "x", "policy": "y"}]' '{"traceEvents": 3}' '[[]]'; do
        echo "$text" >other.json
        refused 2 "mm report: other.json: $why" report rows.json other.json --html page.html
    done
    echo '[{"device": "host", "usable": true, "free_bytes": 1}]' >devices.json
    refused 2 "devices.json: $why" report devices.json --html page.html
    echo '{"traceEvents": [' >cut.json
    refused 2 "cut.json, line 2: " report cut.json --html page.html
    : >empty.json
    refused 2 "empty.json, line 1: " report empty.json --html page.html
    refused 1 "missing.json: cannot be read: No such file or directory" report missing.json --html page.html
    refused 1 ".: cannot be read: Is a directory" report . --html page.html
    [[ ! -e page.html ]] || fail "it wrote a page"
}

a_page_that_cannot_be_written_leaves_what_was_there_() {
    rows rows.json
    refused 1 "cannot be written" report rows.json --html missing/page.html
    mkdir folder
    refused 1 "folder: cannot be written" report rows.json --html folder
    echo before >page.html
    echo '{}' >other.json
    refused 2 "other.json: neither" report other.json --html page.html
    [[ $(<page.html) == before ]] || fail "the old page is lost"
    refused 2 "FILE and --html name the same file, ./rows.json" report rows.json --html ./rows.json
    [[ -s rows.json ]] || fail "the rows are lost"
    [[ ! -w /dev/full ]] || refused 1 "/dev/full: writing failed" report rows.json --html /dev/full
}

what_is_missing_is_said_() {
    refused 2 "no FILE given: give rows, plans, traces or logs" report --html page.html
    refused 2 "no FILE given" report
    refused 2 "--html OUT is missing" report rows.json
    refused 2 "--html needs a value" report rows.json --html
    refused 2 "unknown option '--htm'" report rows.json --htm page.html
    expect 0 report --help
    for text in "usage: mm report FILE... --html OUT" "mm bench --json" "mm plan --explain --json" --trace; do says out "$text"; done
}

run_cases
