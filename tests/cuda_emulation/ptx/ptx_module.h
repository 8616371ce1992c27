/* SPDX-License-Identifier: MIT */
/* Files of PTX as nvcc writes them: their text, and their kernels, each decoded when it first runs. */
#ifndef TESTS_CUDA_EMULATION_PTX_PTX_MODULE_H
#define TESTS_CUDA_EMULATION_PTX_PTX_MODULE_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulation/ptx/ptx_code.h"

namespace ptx {

/* ---------------------------------------------------------------- text (ptx_text.cc) */

using strings = std::vector<std::string>;

bool begins(const std::string &text, const char *with);

/* Without blanks at its ends. */
std::string trimmed(const std::string &text);

/* Parts between `separators` outside of brackets. */
strings parts_of(const std::string &text, const char *separators);

/* What is between braces; or the text, alone. */
strings elements_of(const std::string &text);

/* Bytes of a value of the type "u32"; 0 for pred; -1: it is no type. width_of: of its register. */
int bytes_of(const std::string &type);
int width_of(const std::string &type);

/* A declaration: ".shared .align 16 .b8 name[64]", ".param .u64 name", ".global .u8 name[2] = {1, 2}". */
struct declaration {
    size_t bytes = 0, alignment = 1;
    std::string name, values; /* values: what stands behind "=" */
};
declaration declaration_of(const std::string &text);

enum class text_kind { OPEN, CLOSE, LABEL, DIRECTIVE, INSTRUCTION, END };

struct statement {
    text_kind what;
    std::string text; /* without ';' or ':' */
    uint32_t line;
};

/* Reads the statements of a part of a text, which it borrows. */
class reader {
  public:
    reader(const std::string &all, size_t begin, size_t end);
    statement next();

  private:
    void skip();

    const std::string &text;
    size_t at, last;
    uint32_t line;
};

/* ---------------------------------------------------------------- modules (ptx_module.cc) */

struct parameter {
    size_t at, bytes; /* among the kernel's parameters */
};

struct constant {
    uint32_t reg;
    int width; /* bytes; 0: a predicate */
    uint64_t value;
};

/* A register that says which thread or block this is. */
struct special {
    uint32_t reg;
    const char *name;
};

struct module;

/* shared_bytes: what the kernel declares; dynamic shared memory comes after it. local_bytes: of a thread. */
struct kernel {
    const module *of;
    std::string name;  /* plain_name */
    size_t begin, end; /* its text in the file, from its parameters on */
    std::vector<instruction> code;
    std::vector<parameter> parameters;
    std::vector<constant> constants;
    std::vector<special> specials;
    size_t parameter_bytes, register_bytes, shared_bytes, local_bytes;
    long launches;
};

struct variable {
    size_t bytes;
    std::unique_ptr<char[]> memory;
};

struct module {
    std::string path, stem; /* "zvc_cuda" of ".../zvc_cuda.ptx" */
    std::string text;
    std::vector<std::unique_ptr<kernel>> kernels;
    std::map<std::string, variable> variables;
};

/* Reads the file and finds its kernels; ends the program if it cannot. */
std::unique_ptr<module> module_read(const std::string &path);

/* ptx_decode.cc: decodes the kernel. Ends the program at an instruction that it does not know. */
void kernel_decode(kernel *k);

/* The bytes of the variable of the module that contains the byte, and where it begins; 0: none does. */
size_t module_variable_at(const module &of, const void *at, const void **base_out);

/* A line of the file without blanks at its ends, with the place in the source that it comes from. */
std::string module_line(const module &of, uint32_t line);

/* A mangled name as gcc makes it of a file's own functions: without nvcc's names of anonymous namespaces, and without
 * gcc's letter for static functions, which nvcc does not write. */
std::string plain_name(const std::string &mangled);

} // namespace ptx

#endif
