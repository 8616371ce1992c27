// SPDX-License-Identifier: MIT
#include "tests/cuda_emulation/ptx/ptx_library.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "tests/cuda_emulation/ptx/ptx.h"

namespace ptx {
namespace {

struct symbol {
    std::string name, file; /* file: where a symbol of one file comes from */
};

/* Functions of this program by their addresses, from its file's table of symbols. */
std::unordered_map<uintptr_t, symbol> functions_of_program() {
    uintptr_t base = 0;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *out) { /* the program comes first */
                                                    *static_cast<uintptr_t *>(out) = info->dlpi_addr;
                                                    return 1;
        },
        &base);
    std::ifstream file("/proc/self/exe", std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    const std::string bytes = all.str();
    std::unordered_map<uintptr_t, symbol> found;
    const auto *header = reinterpret_cast<const Elf64_Ehdr *>(bytes.data());
    const auto *sections = reinterpret_cast<const Elf64_Shdr *>(bytes.data() + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const char *names = bytes.data() + sections[sections[s].sh_link].sh_offset;
        const auto *symbols = reinterpret_cast<const Elf64_Sym *>(bytes.data() + sections[s].sh_offset);
        std::string from;
        for (size_t n = 0; n < sections[s].sh_size / sizeof *symbols; n++) {
            const int type = ELF64_ST_TYPE(symbols[n].st_info);
            if (type == STT_FILE) from = names + symbols[n].st_name;
            if (type != STT_FUNC || symbols[n].st_shndx == SHN_UNDEF) continue;
            /* A hidden symbol was global before the program was linked. */
            const bool local = ELF64_ST_BIND(symbols[n].st_info) == STB_LOCAL &&
                               ELF64_ST_VISIBILITY(symbols[n].st_other) == STV_DEFAULT;
            found[base + symbols[n].st_value] = {names + symbols[n].st_name, local ? from : ""};
        }
    }
    return found;
}

struct library {
    std::mutex lock;
    std::vector<std::unique_ptr<module>> modules;
    std::unordered_multimap<std::string, kernel *> kernels;
    std::unordered_map<uintptr_t, symbol> functions;
    std::unordered_map<const void *, kernel *> known;

    library() : functions(functions_of_program()) {
        std::istringstream paths(getenv("MM_PTX"));
        for (std::string path; std::getline(paths, path, ':');) {
            modules.push_back(module_read(path));
            for (const auto &k : modules.back()->kernels) kernels.emplace(k->name, k.get());
        }
    }

    ~library() {
        const char *path = getenv("MM_PTX_REPORT");
        FILE *report = path ? fopen(path, "a") : nullptr;
        if (!report) return;
        for (const auto &m : modules)
            for (const auto &k : m->kernels)
                if (k->launches > 0) fprintf(report, "run %s %s %ld\n", m->stem.c_str(), k->name.c_str(), k->launches);
        fprintf(report, "split %ld\n", split_meetings());
        fclose(report);
    }

    /* The kernel with the function's name; of several, that of the function's file. */
    kernel *search(const void *function, const char *name) {
        const auto symbol = functions.find(reinterpret_cast<uintptr_t>(function));
        if (symbol == functions.end()) refuse(name, "it has no symbol in this program");
        const std::string plain = plain_name(symbol->second.name);
        const auto range = kernels.equal_range(plain);
        kernel *found = nullptr;
        for (auto at = range.first; at != range.second; at++) {
            const std::string file = "_" + at->second->of->stem + "_cu.cc";
            const std::string &from = symbol->second.file;
            const bool ours =
                from.size() > file.size() && from.compare(from.size() - file.size(), file.size(), file) == 0;
            if (!from.empty() && !ours) continue;
            if (found) refuse(name, "two files have a kernel " + plain);
            found = at->second;
        }
        if (!found) refuse(name, "no file of MM_PTX has " + plain);
        kernel_decode(found);
        return found;
    }

    [[noreturn]] static void refuse(const char *name, const std::string &why) {
        fprintf(stderr, "CUDA emulation: no PTX of the kernel %s: %s\n", name, why.c_str());
        abort();
    }
};

} // namespace

bool is_on() {
    static const bool on = getenv("MM_PTX") && *getenv("MM_PTX");
    return on;
}

const kernel &library_find(const void *function, const char *name) {
    static library all;
    const std::lock_guard<std::mutex> guard(all.lock);
    kernel *&k = all.known[function];
    if (!k) k = all.search(function, name);
    k->launches++;
    return *k;
}

} // namespace ptx
