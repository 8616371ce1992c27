/* SPDX-License-Identifier: MIT */
/* Files of PTX as nvcc writes them, and their kernels, each decoded when it first runs. */
#ifndef TESTS_CUDA_EMULATION_PTX_PTX_MODULE_H
#define TESTS_CUDA_EMULATION_PTX_PTX_MODULE_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulation/ptx/ptx_code.h"

namespace ptx {

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

/* Decodes the kernel. Ends the program at an instruction that it does not know. */
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
