// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <unordered_map>

#include "tests/cuda_emulation/ptx/ptx_module.h"

namespace ptx {
namespace {

[[noreturn]] void refuse(const module &of, uint32_t line, const std::string &what) {
    fprintf(stderr, "CUDA emulation: %s: %s\n", module_line(of, line).c_str(), what.c_str());
    abort();
}

size_t up_to(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

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

/* An instruction's text without its guard: "ld.global.v2.f32 {%f1, %f2}, [%rd1]". */
struct words {
    std::string all; /* the name with its modifiers */
    strings name;    /* "ld", "global", "v2", "f32" */
    strings operands;
};

class decoder {
  public:
    explicit decoder(kernel *of) : k(*of), m(*of->of), fast(has_fast()) {}

    void decode() {
        const size_t body = m.text.find('{', k.begin);
        declare_parameters(m.text.substr(k.begin, m.text.find(')', k.begin) - k.begin));
        declare_shared(body);
        read(body + 1, k.end);
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

    [[noreturn]] void refuse_instruction() { refuse("the instruction is not known"); }

    instruction *add(executor run, kind what = kind::PLAIN) {
        if (!run) refuse_instruction();
        instruction *i = add(what);
        i->run = run;
        return i;
    }

    void branch(const words &t) {
        targets.emplace_back(k.code.size(), own + t.operands.at(0));
        add(kind::BRANCH);
    }

    void leave(const words &) {
        if (!own.empty()) targets.emplace_back(k.code.size(), own);
        add(own.empty() ? kind::END : kind::BRANCH);
    }

    /* Sets the space and the number of elements; returns the index of the first word that is neither these nor a hint
     * of caching or order. */
    static size_t set_space(instruction *i, const strings &name) {
        static const std::map<std::string, space> spaces = {{"global", space::GLOBAL},
                                                            {"shared", space::SHARED},
                                                            {"local", space::LOCAL},
                                                            {"param", space::PARAM},
                                                            {"const", space::GLOBAL}};
        static const char *const hints[] = {"nc", "cs",      "cg",  "ca",  "cv",  "lu",       "wb",
                                            "wt", "relaxed", "gpu", "sys", "cta", "volatile", "weak"};
        size_t n = 1;
        for (; n + 1 < name.size(); n++) {
            const auto where = spaces.find(name[n]);
            if (where != spaces.end())
                i->where = where->second;
            else if (name[n] == "v2" || name[n] == "v4")
                i->elements = (uint8_t)(name[n][1] - '0');
            else if (std::find(std::begin(hints), std::end(hints), name[n]) == std::end(hints))
                break;
        }
        return n;
    }

    void load_or_store(const words &t) {
        const std::string &type = t.name.back();
        const bool loads = t.name[0] == "ld";
        if (t.operands.size() != 2) refuse_instruction();
        const std::string &value = t.operands[!loads];
        const strings values = elements_of(value);
        int width = width_of_operand(value);
        if (width < 0) width = width_of(type);
        instruction *i = add(loads ? load_of(type.c_str(), width) : store_of(type.c_str(), width));
        if (set_space(i, t.name) + 1 != t.name.size()) refuse_instruction();
        set_address(i, t.operands[loads]);
        if (values.size() != i->elements) refuse("another number of elements was expected");
        for (size_t v = 0; v < values.size(); v++) i->reg[v] = operand(values[v], width);
    }

    void atomic(const words &t) {
        if (t.name.size() < 3) refuse_instruction();
        const std::string &type = t.name.back();
        const size_t first = t.name[0] == "atom"; /* the address, after a result */
        instruction *i = add(atomic_of(t.name[t.name.size() - 2].c_str(), type.c_str()));
        if (set_space(i, t.name) + 2 != t.name.size()) refuse_instruction();
        set_address(i, t.operands.at(first));
        if (first) i->reg[0] = operand(t.operands[0], bytes_of(type));
        for (size_t v = first + 1; v < t.operands.size(); v++)
            i->reg[v - first] = operand(t.operands[v], bytes_of(type));
    }

    void multiply(const words &t) {
        static const char *const letters[] = {"wwww", "wwww", "ww", "wwww"};
        static const size_t first[] = {0, 4, 8, 10};
        instruction *i = add(meeting_of(t.all.c_str()), kind::ALIGNED);
        for (size_t n = 0; n < 4; n++) set_registers(i, elements_of(t.operands.at(n)), letters[n], first[n]);
    }

    void exchange(const words &t) {
        instruction *i = add(meeting_of(t.all.c_str()), kind::MEET);
        i->lanes = operand(t.operands.back(), 4);
        if (t.operands.size() == 1) return; /* bar.warp.sync */
        const strings results = parts_of(t.operands[0], "|");
        i->of_predicate = t.name[0] == "vote";
        i->reg[0] = operand(results[0], t.all.find(".pred") == std::string::npos ? 4 : 0);
        if (results.size() > 1) i->reg[1] = operand(results[1], 0);
        i->source = operand(t.operands[1], i->of_predicate ? 0 : 4);
        for (size_t n = 2; n + 1 < t.operands.size(); n++) i->reg[n] = operand(t.operands[n], 4);
    }

    void barrier(const words &t) {
        if (t.all == "bar.warp.sync") return exchange(t);
        instruction *i = add(kind::BARRIER);
        static const std::map<std::string, combine> hows = {
            {"bar.sync", combine::NONE},      {"barrier.sync", combine::NONE},      {"bar.red.and.pred", combine::AND},
            {"bar.red.or.pred", combine::OR}, {"bar.red.popc.u32", combine::COUNT},
        };
        const auto how = hows.find(t.all);
        const bool reduces = how != hows.end() && how->second != combine::NONE;
        if (how == hows.end() || t.operands.size() != (reduces ? 3u : 1u) || t.operands[reduces] != "0")
            refuse("the barrier is not known");
        i->how = how->second;
        if (!reduces) return;
        i->reg[0] = operand(t.operands[0], i->how == combine::COUNT ? 4 : 0);
        i->source = operand(t.operands[2], 0);
        i->of_predicate = true;
    }

    /* Gives the parameters of a function, or its results, the places of the caller's: "(.param .b64 a, .param .b32 b)",
     * "(x, y)". */
    void bind(const std::string &formals, const std::string &actuals) {
        const auto inner = [](const std::string &s) { return parts_of(s.substr(1, s.size() - 2), ","); };
        const strings names = inner(formals), places = inner(actuals);
        if (names.size() != places.size()) refuse("another number of arguments was expected");
        for (size_t n = 0; n < names.size(); n++) addresses[declaration_of(names[n]).name] = addresses.at(places[n]);
    }

    /* Puts the function's instructions here. "call.uni (result), name, (parameters)" */
    void call(const words &t) {
        if (t.operands.size() != 3 || t.operands[0][0] != '(') refuse("the call is not known");
        const std::string &name = t.operands[1];
        for (size_t at = 0; (at = m.text.find("\n.func", at)) != std::string::npos; at++) {
            const size_t body = m.text.find_first_of("{;", at), end = m.text.find("\n}", at);
            const std::string head = m.text.substr(at, body - at);
            const size_t results = head.find('('), after = head.find(')'), formal = head.find('(', after);
            if (m.text[body] == ';' || trimmed(head.substr(after + 1, formal - after - 1)) != name) continue;
            bind(head.substr(results, after + 1 - results), t.operands[0]);
            bind(head.substr(formal, head.rfind(')') + 1 - formal), t.operands[2]);
            const uint32_t here = line;
            const std::string outer = own;
            own = std::to_string(++calls) + ":";
            read(body + 1, end);
            labels[own] = k.code.size();
            own = outer;
            line = here;
            return;
        }
        refuse("there is no function " + name);
    }

    void convert_address(const words &t) {
        static const std::map<std::string, space> froms = {
            {"cvta.global.u64", space::GLOBAL}, {"cvta.to.global.u64", space::GLOBAL},
            {"cvta.shared.u64", space::SHARED}, {"cvta.local.u64", space::LOCAL},
            {"cvta.const.u64", space::GLOBAL},
        };
        const auto from = froms.find(t.all);
        if (from == froms.end()) refuse_instruction();
        set_registers(add(address_of(from->second)), t.operands, "dd");
    }

    void move(const words &t) {
        const bool unpacks = t.operands.at(0)[0] == '{', packs = t.operands.at(1)[0] == '{';
        if (!unpacks && !packs) return plain(t);
        const strings parts = elements_of(t.operands[packs]);
        const int wide = bytes_of(t.name.back()), narrow = wide / (int)parts.size();
        instruction *i = add(unpacks ? unpack_of(wide, narrow) : pack_of(wide, narrow));
        i->reg[unpacks ? parts.size() : 0] = operand(t.operands[unpacks], wide);
        for (size_t n = 0; n < parts.size(); n++) i->reg[n + packs] = operand(parts[n], narrow);
    }

    void plain(const words &t) {
        std::string name = t.all;
        const bool widens = name == "cvt.s64.s32" || name == "cvt.u64.u32";
        if (widens && width_of_operand(t.operands.at(1)) == 8) name += ".d";
        for (const operation *o = fast ? operations_fast : operations_plain; o->name; o++)
            if (name == o->name) return set_registers(add(o->run), t.operands, o->registers);
        refuse_instruction();
    }

    /* One thread runs all; memory is in order. */
    void fence(const words &) {}

    void instruction_of(std::string text) {
        using form = void (decoder::*)(const words &);
        static const std::unordered_map<std::string, form> forms = {
            {"atom", &decoder::atomic},    {"bar", &decoder::barrier},   {"barrier", &decoder::barrier},
            {"bra", &decoder::branch},     {"call", &decoder::call},     {"cvta", &decoder::convert_address},
            {"exit", &decoder::leave},     {"fence", &decoder::fence},   {"ld", &decoder::load_or_store},
            {"match", &decoder::exchange}, {"membar", &decoder::fence},  {"mma", &decoder::multiply},
            {"mov", &decoder::move},       {"red", &decoder::atomic},    {"redux", &decoder::exchange},
            {"ret", &decoder::leave},      {"shfl", &decoder::exchange}, {"st", &decoder::load_or_store},
            {"vote", &decoder::exchange},
        };
        guard = NO_REGISTER;
        if (text[0] == '@') {
            const size_t end = text.find_first_of(" \t"), name = text[1] == '!' ? 2 : 1;
            guard_negated = name == 2;
            guard = operand(text.substr(name, end - name), 0);
            text = trimmed(text.substr(end));
        }
        const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
        words t = {text.substr(0, end), {}, parts_of(text.substr(end), ",")};
        t.name = parts_of(t.all, ".");
        const auto known = forms.find(t.name.at(0));
        (this->*(known == forms.end() ? &decoder::plain : known->second))(t);
    }

    void read(size_t begin, size_t end) {
        reader from(m.text, begin, end);
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
                instruction_of(s.text);
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
    std::string own; /* before the labels of a function that is called */
    int calls = 0;
    std::vector<scope> scopes;
    std::unordered_map<std::string, address> addresses;
    std::unordered_map<std::string, size_t> labels;
    std::vector<std::pair<size_t, std::string>> targets;
    std::map<std::pair<int, uint64_t>, uint32_t> constants;
};

} // namespace

void kernel_decode(kernel *k) { decoder(k).decode(); }

} // namespace ptx
