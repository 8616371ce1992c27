#!/bin/bash
# include_graph.sh ROOT LAYERS: the include graph of the sources below ROOT. Fails, and says where, on a file that no
# layer of the table LAYERS holds; on an include of a layer that the table does not allow; on a circle of files, or of
# rooms (a folder's files of one layer); on an include that is not a path from ROOT; and on two files with one name.
# SPDX-License-Identifier: MIT
set -euo pipefail
export LC_ALL=C
layers=$(realpath "$2")
cd "$1"
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/include_graph.XXXXXX")
trap 'rm -rf "$work"' EXIT

# What git ignores is not of the project.
files() {
    git ls-files --cached --others --exclude-standard 2>/dev/null || find . -name '.?*' -prune -o -type f -printf '%P\n'
}
while read -r file; do [[ ! -e $file ]] || echo "$file"; done < <(files) | sort -u >"$work/files"
grep -E '\.(c|h|cc|cu|cuh)$' "$work/files" >"$work/sources" || { echo "no sources in $1" && exit 1; }
xargs grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' <"$work/sources" >"$work/includes"

failed=0
awk -v files_out="$work/file_edges" -v rooms_out="$work/room_edges" '
    function fault(text) { print text; faults++ }
    function layer_of(file,    i, best) {
        for (i = 1; i <= n; i++)
            if (file ~ pattern[i] && length(pattern[i]) > length(pattern[best])) best = i
        return owner[best]
    }
    function room_of(file) { return layer[file] ":" (match(file, "/[^/]*$") ? substr(file, 1, RSTART - 1) : ".") }
    FILENAME == ARGV[1] {
        if (/^#/ || !NF) next
        split($0, field, ":")
        gsub(/ /, "", field[1])
        known[field[1]] = 1
        words = split(field[2], word, " ")
        for (i = 1; i <= words; i++) {
            gsub(/\./, "\\.", word[i])
            gsub(/\*/, ".*", word[i])
            pattern[++n] = "^" word[i] "$"
            owner[n] = field[1]
        }
        below[field[1]] = field[3]
        words = split(field[3], word, " ")
        for (i = 1; i <= words; i++) {
            if (word[i] != "*" && !(word[i] in known)) fault(ARGV[1] ": " field[1] " names " word[i] ", which is not below it")
            may[field[1], word[i]] = 1
        }
        next
    }
    FILENAME == ARGV[2] {
        layer[$0] = layer_of($0)
        if (layer[$0] == "") fault($0 ": no layer of the table holds it")
        next
    }
    {
        split($0, at, ":")
        from = at[1]
        split($0, quoted, "\"")
        to = quoted[2]
        if (!(to in layer)) { fault(from ":" at[2] " includes " to ", which is no path of a source from the root"); next }
        a = layer[from]
        b = layer[to]
        if (a != b && !((a, b) in may) && !((a, "*") in may))
            fault(from ":" at[2] " includes " to ": " a " may include only:" below[a] ", not " b)
        print from, to >files_out
        if (room_of(from) != room_of(to)) print room_of(from), room_of(to) >rooms_out
    }
    END { exit faults > 0 }' "$layers" "$work/sources" "$work/includes" || failed=1

for what in file room; do
    if ! tsort "$work/${what}_edges" >/dev/null 2>"$work/circle"; then
        echo "a circle of ${what}s:" "$(sed -n 's/^tsort: \([^ ]*\)$/\1/p' "$work/circle" | paste -sd' ')"
        failed=1
    fi
done

# A name says what a file is wherever it is seen: in a message, a search, a stack.
twice=$(grep -vE '(^|/)(BUILD|README\.md)$' "$work/files" | sed 's#.*/##' | sort | uniq -d)
for name in $twice; do
    echo "one name, several files: $(grep -E "(^|/)$name\$" "$work/files" | paste -sd' ')"
    failed=1
done
exit "$failed"
