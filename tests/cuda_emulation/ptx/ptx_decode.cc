// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <unordered_map>

#include "tests/cuda_emulation/ptx/ptx_module.h"

namespace ptx {
namespace {

using strings = std::vector<std::string>;

[[noreturn]] void refuse(const module &of, uint32_t line, const std::string &what) {
    fprintf(stderr, "CUDA emulation: %s: %s\n", module_line(of, line).c_str(), what.c_str());
    abort();
}

size_t up_to(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

bool begins(const std::string &text, const char *with) { return text.rfind(with, 0) == 0; }

std::string trimmed(const std::string &text) {
    const size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/* Parts between `separators` outside of brackets. */
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

/* Bytes of a value of the type "u32"; 0 for pred. */
int bytes_of(const std::string &type) {
    if (type == "pred") return 0;
    const size_t digits = type.find_first_of("0123456789");
    return digits == std::string::npos ? -1 : atoi(type.c_str() + digits) / 8;
}
/* The same of a register. */
int width_of(const std::string &type) { return bytes_of(type) == 1 ? 2 : bytes_of(type); }

/* ---------------------------------------------------------------- text */

enum class text_kind { OPEN, CLOSE, LABEL, DIRECTIVE, INSTRUCTION, END };

struct statement {
    text_kind what;
    std::string text; /* without ';' or ':' */
    uint32_t line;
};

class reader {
  public:
    reader(const module &of, size_t begin, size_t end) : text(of.text), at(begin), last(end) {
        line = 1 + (uint32_t)std::count(text.begin(), text.begin() + (long)begin, '\n');
    }

    statement next() {
        for (;;) {
            skip();
            if (at >= last) return {text_kind::END, "", line};
            if (text.compare(at, 5, ".loc\t") && text.compare(at, 5, ".file")) break;
            at = std::min(text.find('\n', at), last);
        }
        const uint32_t here = line;
        if (text[at] == '{' || text[at] == '}')
            return {text[at++] == '{' ? text_kind::OPEN : text_kind::CLOSE, "", here};
        size_t end = at;
        while (end < last && (isalnum(text[end]) || strchr("_$", text[end]))) end++;
        if (end > at && text[end] == ':') {
            statement label = {text_kind::LABEL, text.substr(at, end - at), here};
            at = end + 1;
            return label;
        }
        end = text.find(';', at);
        statement got = {text[at] == '.' ? text_kind::DIRECTIVE : text_kind::INSTRUCTION, text.substr(at, end - at),
                         here};
        line += (uint32_t)std::count(got.text.begin(), got.text.end(), '\n');
        at = end + 1;
        return got;
    }

  private:
    void skip() {
        for (; at < last; at++) {
            if (text.compare(at, 2, "//") == 0) at = std::min(text.find('\n', at), last - 1);
            if (text[at] == '\n') line++;
            if (!isspace(text[at]) && text[at] != ';') return;
        }
    }

    const std::string &text;
    size_t at, last;
    uint32_t line;
};

/* A declaration: ".shared .align 16 .b8 name[64]", ".param .u64 name". */
struct declaration {
    size_t bytes = 0, alignment = 1;
    std::string name, values;
};

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

/* ---------------------------------------------------------------- decoding */

struct reg {
    uint32_t at;
    int width;
};

/* Names between braces. Of each prefix of numbered registers ("%r") its width. */
struct scope {
    std::unordered_map<std::string, reg> registers;
    std::unordered_map<std::string, int> prefixes;
};

struct address {
    space where;
    uint64_t value;
};

class decoder {
  public:
    explicit decoder(kernel *of) : k(*of), m(*of->of), fast(has_fast()) {}

    void decode() {
        const size_t body = m.text.find('{', k.begin);
        declare_parameters(m.text.substr(k.begin, m.text.find(')', k.begin) - k.begin));
        declare_shared(body);
        read(body + 1, k.end, "");
        finish_labels();
        if (k.code.empty() || k.code.back().what != kind::END) add(kind::END);
        k.local_bytes = up_to(k.local_bytes, 16);
    }

  private:
    static bool has_fast() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

    [[noreturn]] void refuse(const std::string &what) { ptx::refuse(m, line, what); }

    /* ------------------------------------------------------------ declarations */

    void declare_parameters(const std::string &text) {
        for (const std::string &one : parts_of(text, ",")) {
            const declaration d = declaration_of(one);
            k.parameter_bytes = up_to(k.parameter_bytes, d.alignment);
            k.parameters.push_back({k.parameter_bytes, d.bytes});
            addresses[d.name] = {space::PARAM, k.parameter_bytes};
            k.parameter_bytes += d.bytes;
        }
    }

    /* Shared memory of the kernel, and what it uses of the module's; then the dynamic one. */
    void declare_shared(size_t body) {
        const std::string text = m.text.substr(body, k.end - body);
        strings dynamic;
        const auto declare = [&](const std::string &statement) {
            const declaration d = declaration_of(statement);
            if (d.bytes == 0) {
                dynamic.push_back(d.name);
                return;
            }
            k.shared_bytes = up_to(k.shared_bytes, d.alignment);
            addresses[d.name] = {space::SHARED, k.shared_bytes};
            k.shared_bytes += d.bytes;
        };
        for (size_t at = 0; (at = text.find("\n\t.shared", at)) != std::string::npos; at++)
            declare(text.substr(at + 2, text.find(';', at) - at - 2));
        for (const char *how : {"\n.shared", "\n.extern .shared"})
            for (size_t at = 0; (at = m.text.find(how, at)) != std::string::npos; at++) {
                const std::string statement = m.text.substr(at + 1, m.text.find(';', at) - at - 1);
                if (text.find(declaration_of(statement).name) != std::string::npos) declare(statement);
            }
        k.shared_bytes = up_to(k.shared_bytes, 16);
        for (const std::string &name : dynamic) addresses[name] = {space::SHARED, k.shared_bytes};
    }

    void declare_local(const declaration &d) {
        k.local_bytes = up_to(k.local_bytes, d.alignment);
        addresses[d.name] = {space::LOCAL, k.local_bytes};
        k.local_bytes += d.bytes;
    }

    void directive(const std::string &text) {
        if (begins(text, ".reg")) {
            const strings words = parts_of(text, " \t\n,");
            const int width = width_of(words.at(1).substr(1));
            for (size_t n = 2; n < words.size(); n++) {
                const size_t count = words[n].find('<');
                if (count != std::string::npos)
                    scopes.back().prefixes[words[n].substr(0, count)] = width;
                else
                    scopes.back().registers[words[n]] = new_register(width);
            }
        } else if (begins(text, ".local") || begins(text, ".param")) {
            declare_local(declaration_of(text)); /* .param: of a call */
        } else if (!begins(text, ".shared") && !begins(text, ".pragma")) {
            refuse("the directive is not known");
        }
    }

    /* ------------------------------------------------------------ operands */

    reg new_register(int width) {
        const reg r = {(uint32_t)k.register_bytes, width};
        k.register_bytes += width == 0 ? 16 : (size_t)width * LANES; // 16: those of 8 bytes stay aligned
        return r;
    }

    uint32_t new_constant(int width, uint64_t value) {
        const auto key = std::make_pair(width, value);
        const auto found = constants.find(key);
        if (found != constants.end()) return found->second;
        const uint32_t at = new_register(width).at;
        k.constants.push_back({at, width, value});
        return constants[key] = at;
    }

    bool find_register(const std::string &name, reg *out) {
        const std::string prefix = name.substr(0, name.find_last_not_of("0123456789") + 1);
        for (size_t s = scopes.size(); s-- > 0;) {
            const auto exact = scopes[s].registers.find(name);
            if (exact != scopes[s].registers.end()) {
                *out = exact->second;
                return true;
            }
            const auto of = scopes[s].prefixes.find(prefix);
            if (of == scopes[s].prefixes.end()) continue;
            *out = scopes[s].registers[name] = new_register(of->second);
            return true;
        }
        static const char *const specials[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                               "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                               "%nctaid.y", "%nctaid.z", "%laneid"};
        for (const char *special : specials)
            if (name == special) {
                *out = scopes[0].registers[name] = new_register(4);
                k.specials.push_back({out->at, special});
                return true;
            }
        return false;
    }

    bool find_address(const std::string &name, address *out) {
        const auto found = addresses.find(name);
        if (found != addresses.end()) {
            *out = found->second;
            return true;
        }
        const auto variable = m.variables.find(name);
        if (variable == m.variables.end()) return false;
        *out = {space::GLOBAL, (uint64_t)(uintptr_t)variable->second.memory.get()};
        return true;
    }

    /* The register, or a constant. */
    uint32_t operand(const std::string &text, int width) {
        if (text == "_") return NO_REGISTER;
        reg r;
        if (find_register(text, &r)) {
            if (r.width != width) refuse(text + " is of another width than the instruction");
            return r.at;
        }
        address a;
        if (find_address(text, &a)) return new_constant(width, a.value);
        char *end;
        uint64_t value;
        if (begins(text, "0f") || begins(text, "0d"))
            value = strtoull(text.c_str() + 2, &end, 16);
        else
            value = text[0] == '-' ? (uint64_t)strtoll(text.c_str(), &end, 0) : strtoull(text.c_str(), &end, 0);
        if (*end == 'U') end++;
        if (*end || end == text.c_str()) refuse("what is " + text + "?");
        if (width == 0) value = value ? ALL : 0;
        return new_constant(width, value);
    }

    uint32_t operand(const std::string &text, char letter) {
        return operand(text, letter == 'p' ? 0 : letter == 'h' ? 2 : letter == 'w' ? 4 : 8);
    }

    /* Width of a register that stands alone or first in braces. */
    int width_of_operand(const std::string &text) {
        for (const std::string &part : elements_of(text)) {
            reg r;
            if (find_register(part, &r)) return r.width;
        }
        return -1;
    }

    static strings elements_of(const std::string &text) {
        return text[0] == '{' ? parts_of(text.substr(1, text.size() - 2), ",") : strings{text};
    }

    /* "[%rd1+8]" */
    void set_address(instruction *i, const std::string &text) {
        if (text.size() < 2 || text[0] != '[') refuse(text + " is no address");
        for (const std::string &part : parts_of(text.substr(1, text.size() - 2), "+")) {
            reg r;
            address a;
            if (find_register(part, &r)) {
                i->address = r.at;
                i->wide_address = r.width == 8;
            } else if (find_address(part, &a)) {
                i->offset += (int64_t)a.value;
                if (i->where == space::PARAM) i->where = a.where; /* a call's are local */
            } else {
                i->offset += strtoll(part.c_str(), nullptr, 0);
            }
        }
    }

    /* ------------------------------------------------------------ instructions */

    instruction *add(kind what) {
        instruction i = {};
        std::fill(i.reg, i.reg + 14, NO_REGISTER);
        i.guard = guard;
        i.negated = guard_negated;
        i.address = i.source = i.lanes = NO_REGISTER;
        i.line = line;
        i.what = what;
        i.elements = 1;
        k.code.push_back(i);
        return &k.code.back();
    }

    void set_registers(instruction *i, const strings &operands, const char *letters, size_t from = 0) {
        if (operands.size() != strlen(letters)) refuse("another number of operands was expected");
        for (size_t n = 0; n < operands.size(); n++) i->reg[from + n] = operand(operands[n], letters[n]);
    }

    void memory(const std::string &name, const strings &words, const strings &operands) {
        instruction *i = add(kind::PLAIN);
        static const std::map<std::string, space> spaces = {{"global", space::GLOBAL},
                                                            {"shared", space::SHARED},
                                                            {"local", space::LOCAL},
                                                            {"param", space::PARAM},
                                                            {"const", space::GLOBAL}};
        static const char *const hints[] = {"nc", "cs",      "cg",  "ca",  "cv",  "lu",       "wb",
                                            "wt", "relaxed", "gpu", "sys", "cta", "volatile", "weak"};
        size_t n = 1;
        for (; n + 1 < words.size(); n++) {
            const auto where = spaces.find(words[n]);
            if (where != spaces.end())
                i->where = where->second;
            else if (words[n] == "v2" || words[n] == "v4")
                i->elements = (uint8_t)(words[n][1] - '0');
            else if (std::find(std::begin(hints), std::end(hints), words[n]) == std::end(hints))
                break;
        }
        const char *const type = words.back().c_str();
        if (name == "atom" || name == "red") {
            if (n + 2 != words.size()) refuse("the instruction is not known");
            i->run = atomic_of(words[n].c_str(), type);
            const size_t first = name == "atom";
            set_address(i, operands.at(first));
            if (first) i->reg[0] = operand(operands[0], bytes_of(type));
            for (size_t v = first + 1; v < operands.size(); v++)
                i->reg[v - first] = operand(operands[v], bytes_of(type));
        } else {
            if (n + 1 != words.size() || operands.size() != 2) refuse("the instruction is not known");
            const bool loads = name == "ld";
            const strings values = elements_of(operands[loads ? 0 : 1]);
            int width = width_of_operand(operands[loads ? 0 : 1]);
            if (width < 0) width = width_of(type);
            i->run = loads ? load_of(type, width) : store_of(type, width);
            set_address(i, operands[loads ? 1 : 0]);
            if (values.size() != i->elements) refuse("another number of elements was expected");
            for (size_t v = 0; v < values.size(); v++) i->reg[v] = operand(values[v], width);
        }
        if (!i->run) refuse("the instruction is not known");
    }

    void meeting(const std::string &op, const std::string &name, const strings &operands) {
        instruction *i = add(kind::MEET);
        i->run = meeting_of(op.c_str());
        if (!i->run) refuse("the instruction is not known");
        if (name == "mma") {
            i->what = kind::ALIGNED;
            const char *const letters[] = {"wwww", "wwww", "ww", "wwww"};
            const size_t first[] = {0, 4, 8, 10};
            for (int n = 0; n < 4; n++) set_registers(i, elements_of(operands.at((size_t)n)), letters[n], first[n]);
            return;
        }
        i->lanes = operand(operands.back(), 4);
        if (name == "bar") return;
        const strings results = parts_of(operands[0], "|");
        i->of_predicate = name == "vote";
        i->reg[0] = operand(results[0], op.find(".pred") == std::string::npos ? 4 : 0);
        if (results.size() > 1) i->reg[1] = operand(results[1], 0);
        i->source = operand(operands.at(1), i->of_predicate ? 0 : 4);
        for (size_t n = 2; n + 1 < operands.size(); n++) i->reg[n] = operand(operands[n], 4);
    }

    void barrier(const std::string &op, const strings &operands) {
        instruction *i = add(kind::BARRIER);
        static const std::map<std::string, combine> hows = {
            {"bar.sync", combine::NONE},      {"barrier.sync", combine::NONE},      {"bar.red.and.pred", combine::AND},
            {"bar.red.or.pred", combine::OR}, {"bar.red.popc.u32", combine::COUNT},
        };
        const auto how = hows.find(op);
        const bool reduces = how != hows.end() && how->second != combine::NONE;
        if (how == hows.end() || operands.size() != (reduces ? 3u : 1u) || operands[reduces] != "0")
            refuse("the barrier is not known");
        i->how = how->second;
        if (!reduces) return;
        i->reg[0] = operand(operands[0], i->how == combine::COUNT ? 4 : 0);
        i->source = operand(operands[2], 0);
        i->of_predicate = true;
    }

    /* Puts the function's instructions here. "call.uni (result), name, (parameters)" */
    void call(const std::string &text) {
        const strings all = parts_of(text, ",");
        if (all.size() != 3 || all[0][0] != '(') refuse("the call is not known");
        const std::string &name = all[1];
        const auto inner = [](const std::string &s) { return parts_of(s.substr(1, s.size() - 2), ","); };
        for (size_t at = 0; (at = m.text.find("\n.func", at)) != std::string::npos; at++) {
            const size_t body = m.text.find_first_of("{;", at), end = m.text.find("\n}", at);
            const std::string head = m.text.substr(at, body - at);
            const size_t results = head.find('('), after = head.find(')'), formal = head.find('(', after);
            if (m.text[body] == ';' || trimmed(head.substr(after + 1, formal - after - 1)) != name) continue;
            const auto bind = [&](const std::string &formals, const strings &actuals) {
                const strings names = parts_of(formals, ",");
                if (names.size() != actuals.size()) refuse("another number of arguments was expected");
                for (size_t n = 0; n < names.size(); n++)
                    addresses[declaration_of(names[n]).name] = addresses.at(actuals[n]);
            };
            bind(head.substr(results + 1, after - results - 1), inner(all[0]));
            bind(head.substr(formal + 1, head.rfind(')') - formal - 1), inner(all[2]));
            const uint32_t here = line;
            const std::string own = std::to_string(++calls) + ":";
            read(body + 1, end, own);
            labels[own] = k.code.size();
            line = here;
            return;
        }
        refuse("there is no function " + name);
    }

    void plain(const std::string &op, const strings &operands) {
        std::string name = op;
        const bool converts = begins(op, "cvt.") && operands.size() == 2;
        if (converts && width_of_operand(operands[1]) == 8 && (op == "cvt.s64.s32" || op == "cvt.u64.u32"))
            name += ".d";
        for (const operation *o = fast ? operations_fast : operations_plain; o->name; o++)
            if (name == o->name) {
                instruction *i = add(kind::PLAIN);
                i->run = o->run;
                set_registers(i, operands, o->registers);
                return;
            }
        refuse("the instruction is not known");
    }

    void instruction_of(const std::string &whole, const std::string &own) {
        std::string text = whole;
        guard = NO_REGISTER;
        if (text[0] == '@') {
            const size_t end = text.find_first_of(" \t");
            guard_negated = text[1] == '!';
            guard = operand(text.substr(guard_negated ? 2 : 1, end - (guard_negated ? 2 : 1)), 0);
            text = trimmed(text.substr(end));
        }
        const size_t end = text.find_first_of(" \t\n");
        const std::string op = text.substr(0, end), rest = end == std::string::npos ? "" : text.substr(end);
        const strings words = parts_of(op, "."), operands = parts_of(rest, ",");
        const std::string &name = words[0];
        if (name == "bra") {
            targets.emplace_back(k.code.size(), own + operands.at(0));
            add(kind::BRANCH);
        } else if (name == "ret" || name == "exit") {
            if (own.empty()) {
                add(kind::END);
            } else {
                targets.emplace_back(k.code.size(), own);
                add(kind::BRANCH);
            }
        } else if (name == "ld" || name == "st" || name == "atom" || name == "red") {
            memory(name, words, operands);
        } else if (name == "shfl" || name == "vote" || name == "redux" || name == "match" || name == "mma" ||
                   op == "bar.warp.sync") {
            meeting(op, name, operands);
        } else if (name == "bar" || name == "barrier") {
            barrier(op, operands);
        } else if (name == "call") {
            call(rest);
        } else if (name == "cvta") {
            instruction *i = add(kind::PLAIN);
            if (words.size() == 4 && words[1] == "to" && words[2] != "global") refuse("the instruction is not known");
            i->run = address_of(words[1] == "shared"  ? space::SHARED
                                : words[1] == "local" ? space::LOCAL
                                                      : space::GLOBAL);
            set_registers(i, operands, "dd");
        } else if (name == "mov" && (operands.at(0)[0] == '{' || operands.at(1)[0] == '{')) {
            const bool unpacks = operands[0][0] == '{';
            const strings parts = elements_of(operands[unpacks ? 0 : 1]);
            const int wide = bytes_of(words[1]), narrow = wide / (int)parts.size();
            instruction *i = add(kind::PLAIN);
            i->run = unpacks ? unpack_of(wide, narrow) : pack_of(wide, narrow);
            if (!i->run) refuse("the instruction is not known");
            const size_t one = unpacks ? parts.size() : 0, several = unpacks ? 0 : 1;
            i->reg[one] = operand(operands[unpacks ? 1 : 0], wide);
            for (size_t n = 0; n < parts.size(); n++) i->reg[several + n] = operand(parts[n], narrow);
        } else if (name != "membar" && name != "fence") { /* one thread runs all; memory is in order */
            plain(op, operands);
        }
    }

    /* own: before the labels of a function that is called. */
    void read(size_t begin, size_t end, const std::string &own) {
        reader from(m, begin, end);
        const size_t outer = scopes.size();
        scopes.emplace_back();
        for (;;) {
            const statement s = from.next();
            line = s.line;
            switch (s.what) {
            case text_kind::OPEN:
                scopes.emplace_back();
                break;
            case text_kind::CLOSE:
                scopes.pop_back();
                break;
            case text_kind::LABEL:
                labels[own + s.text] = k.code.size();
                break;
            case text_kind::DIRECTIVE:
                directive(s.text);
                break;
            case text_kind::INSTRUCTION:
                instruction_of(s.text, own);
                break;
            case text_kind::END:
                scopes.resize(outer);
                return;
            }
        }
    }

    void finish_labels() {
        for (const auto &t : targets) {
            line = k.code[t.first].line;
            const auto found = labels.find(t.second);
            if (found == labels.end()) refuse("there is no label " + t.second);
            k.code[t.first].target = (uint32_t)found->second;
        }
    }

    kernel &k;
    const module &m;
    const bool fast;
    uint32_t line = 1, guard = NO_REGISTER;
    bool guard_negated = false;
    int calls = 0;
    std::vector<scope> scopes;
    std::unordered_map<std::string, address> addresses;
    std::unordered_map<std::string, size_t> labels;
    std::vector<std::pair<size_t, std::string>> targets;
    std::map<std::pair<int, uint64_t>, uint32_t> constants;
};

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

void kernel_decode(kernel *k) { decoder(k).decode(); }

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
