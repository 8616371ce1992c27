// SPDX-License-Identifier: MIT
#include "tests/cuda_emulation/ptx/ptx_module.h"

#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

namespace ptx {

namespace {

void read_variables(module *m) {
    for (const char *how : {"\n.global", "\n.const"})
        for (size_t at = 0; (at = m->text.find(how, at)) != std::string::npos; at++) {
            const declaration d = declaration_of(m->text.substr(at + 1, m->text.find(';', at) - at - 1));
            variable v = {d.bytes, std::unique_ptr<char[]>(new char[d.bytes]())};
            size_t n = 0;
            const size_t open = d.values.find('{'), close = d.values.find('}');
            if (open != std::string::npos)
                for (const std::string &value : parts_of(d.values.substr(open + 1, close - open - 1), ","))
                    if (n < d.bytes) v.memory[n++] = (char)strtol(value.c_str(), nullptr, 0);
            if (n > 0 && n != d.bytes) {
                fprintf(stderr, "CUDA emulation: %s: %s has no value for each byte\n", m->path.c_str(), d.name.c_str());
                abort();
            }
            m->variables[d.name] = std::move(v);
        }
}

} // namespace

std::string plain_name(const std::string &mangled) {
    std::string out;
    for (size_t at = 0; at < mangled.size();) {
        const size_t end = mangled.find_first_not_of("0123456789", at);
        const bool digits = end != at && end != std::string::npos;
        if (digits && mangled.compare(end, 11, "_GLOBAL__N_") == 0) {
            out += "12_GLOBAL__N_1";
            at = end + strtoul(mangled.c_str() + at, nullptr, 10);
        } else if (mangled.compare(at, 3, "_ZL") == 0) {
            out += "_Z";
            at += 3;
        } else {
            out += mangled[at++];
        }
    }
    return out;
}

std::unique_ptr<module> module_read(const std::string &path) {
    auto m = std::make_unique<module>();
    m->path = path;
    const size_t slash = path.rfind('/') + 1;
    m->stem = path.substr(slash, path.rfind('.') - slash);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    m->text = text.str();
    for (size_t at = 0; (at = m->text.find(".entry ", at)) != std::string::npos;) {
        const size_t name = at + strlen(".entry "), open = m->text.find('(', name);
        auto k = std::make_unique<kernel>();
        k->of = m.get();
        k->name = plain_name(m->text.substr(name, open - name));
        k->begin = open + 1;
        k->end = at = m->text.find("\n}", open);
        if (at == std::string::npos) break;
        m->kernels.push_back(std::move(k));
    }
    if (m->kernels.empty()) {
        fprintf(stderr, "CUDA emulation: %s cannot be read, or has no kernel\n", path.c_str());
        abort();
    }
    read_variables(m.get());
    return m;
}

size_t module_variable_at(const module &of, const void *at, const void **base_out) {
    for (const auto &v : of.variables) {
        const char *base = v.second.memory.get();
        if (at < base || at >= base + v.second.bytes) continue;
        *base_out = base;
        return v.second.bytes;
    }
    return 0;
}

std::string module_line(const module &of, uint32_t line) {
    std::istringstream text(of.text);
    std::string one, loc, source;
    for (uint32_t n = 0; n < line && std::getline(text, one); n++)
        if (trimmed(one).compare(0, 5, ".loc\t") == 0) loc = trimmed(one).substr(5);
    const size_t file = of.text.find("\n\t.file\t" + loc.substr(0, loc.find(' ')) + " \"");
    if (!loc.empty() && file != std::string::npos) {
        const size_t name = of.text.find('"', file) + 1, end = of.text.find('"', name);
        source = of.text.substr(name, end - name);
        source = " (" + source.substr(source.rfind('/') + 1) + ":" + parts_of(loc, " ").at(1) + ")";
    }
    return of.path + ":" + std::to_string(line) + source + ": " + trimmed(one);
}

} // namespace ptx
