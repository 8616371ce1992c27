# SPDX-License-Identifier: MIT
# Prints each line of comments or prose that has more than 120 columns. The file's name decides what is looked at: in C
# and similar languages the comments (clang-format checks the code); in Python comments and docstrings; in Markdown all
# but tables and blocks of code; in other files comments that begin with #. Exits with 1 if it found such a line.
# LC_ALL=C: a column is a character, of one or more bytes.

function columns(line) { return length(line) - gsub(/[\200-\277]/, "", line) }

function tell() {
    printf "%s:%d: %d columns\n", FILENAME, FNR, columns($0)
    found = 1
}

# Where a comment of C begins or ends, line by line; `commented` is whether the line has any.
function of_c(line, at) {
    gsub(/'\\?.'|"([^"\\]|\\.)*"/, "\"\"", line)
    commented = inside
    while (line != "") {
        if (inside) {
            at = index(line, "*/")
            line = at ? substr(line, at + 2) : ""
            inside = !at
        } else if (match(line, /\/[\/*]/)) {
            commented = 1
            inside = substr(line, RSTART + 1, 1) == "*"
            line = inside ? substr(line, RSTART + 2) : ""
        } else line = ""
    }
}

FNR == 1 {
    inside = 0
    kind = FILENAME ~ /\.(c|h|hpp|cc|cu|js|css)$/ ? "c" : FILENAME ~ /\.md$/ ? "md" : FILENAME ~ /\.(py|bzl)$/ ? "py" : "#"
}

kind == "c" {
    if (inside || /\/[\/*]/) of_c($0)
    else commented = 0
    if (commented && length($0) > 120 && columns($0) > 120) tell()
    next
}

kind == "md" {
    if (/^ *(```|~~~)/) inside = !inside
    if (!inside && length($0) > 120 && columns($0) > 120 && !/^ *\|/) tell()
    next
}

# A docstring begins a line; other texts of several lines are data.
kind == "py" && /"""/ {
    line = $0
    quotes = gsub(/"""/, "", line)
    document = inside ? document : /^ *[rb]?"""/
    text = document
    if (quotes % 2) inside = !inside
}
kind == "py" && !/"""/ { text = inside && document }

length($0) > 120 && columns($0) > 120 {
    if (/^ *#/ || (kind == "py" && (text || (!inside && /  # /))) || (kind == "#" && / # [^"]*$/)) tell()
}

END { exit found }
