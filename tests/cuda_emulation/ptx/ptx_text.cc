// SPDX-License-Identifier: MIT
#include "tests/cuda_emulation/ptx/ptx_module.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace ptx {

bool begins(const std::string &text, const char *with) { return text.rfind(with, 0) == 0; }

std::string trimmed(const std::string &text) {
    const size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

strings parts_of(const std::string &text, const char *separators) {
    strings parts;
    std::string part;
    int depth = 0;
    for (const char c : text) {
        depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (depth == 0 && strchr(separators, c)) {
            if (!trimmed(part).empty()) parts.push_back(trimmed(part));
            part.clear();
        } else {
            part += c;
        }
    }
    if (!trimmed(part).empty()) parts.push_back(trimmed(part));
    return parts;
}

strings elements_of(const std::string &text) {
    return text[0] == '{' ? parts_of(text.substr(1, text.size() - 2), ",") : strings{text};
}

int bytes_of(const std::string &type) {
    if (type == "pred") return 0;
    const size_t digits = type.find_first_of("0123456789");
    return digits == std::string::npos ? -1 : atoi(type.c_str() + digits) / 8;
}

int width_of(const std::string &type) { return bytes_of(type) == 1 ? 2 : bytes_of(type); }

declaration declaration_of(const std::string &text) {
    declaration d;
    std::string head = text;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
        d.values = text.substr(equals + 1);
        head = text.substr(0, equals);
    }
    size_t elements = 1;
    const size_t bracket = head.find('[');
    if (bracket != std::string::npos) {
        elements = strtoul(head.c_str() + bracket + 1, nullptr, 10);
        head = head.substr(0, bracket);
    }
    strings words = parts_of(head, " \t\n");
    for (size_t n = 0; n + 1 < words.size(); n++) {
        if (words[n] == ".align") {
            d.alignment = strtoul(words[++n].c_str(), nullptr, 10);
        } else if (n > 0 && bytes_of(words[n].substr(1)) > 0) {
            d.bytes = (size_t)bytes_of(words[n].substr(1)) * elements;
            d.alignment = std::max(d.alignment, (size_t)bytes_of(words[n].substr(1)));
        }
    }
    d.name = words.empty() ? "" : words.back();
    return d;
}

reader::reader(const std::string &all, size_t begin, size_t end) : text(all), at(begin), last(end) {
    line = 1 + (uint32_t)std::count(text.begin(), text.begin() + (long)begin, '\n');
}

void reader::skip() {
    for (; at < last; at++) {
        if (text.compare(at, 2, "//") == 0) at = std::min(text.find('\n', at), last - 1);
        if (text[at] == '\n') line++;
        if (!isspace(text[at]) && text[at] != ';') return;
    }
}

statement reader::next() {
    for (;;) {
        skip();
        if (at >= last) return {text_kind::END, "", line};
        if (text.compare(at, 5, ".loc\t") && text.compare(at, 5, ".file")) break;
        at = std::min(text.find('\n', at), last);
    }
    const uint32_t here = line;
    if (text[at] == '{' || text[at] == '}') return {text[at++] == '{' ? text_kind::OPEN : text_kind::CLOSE, "", here};
    size_t end = at;
    while (end < last && (isalnum(text[end]) || strchr("_$", text[end]))) end++;
    if (end > at && text[end] == ':') {
        statement label = {text_kind::LABEL, text.substr(at, end - at), here};
        at = end + 1;
        return label;
    }
    end = text.find(';', at);
    statement got = {text[at] == '.' ? text_kind::DIRECTIVE : text_kind::INSTRUCTION, text.substr(at, end - at), here};
    line += (uint32_t)std::count(got.text.begin(), got.text.end(), '\n');
    at = end + 1;
    return got;
}

} // namespace ptx
