/* SPDX-License-Identifier: MIT */
/* The text of PTX: its statements, their parts, declarations. */
#ifndef TESTS_CUDA_EMULATION_PTX_PTX_TEXT_H
#define TESTS_CUDA_EMULATION_PTX_PTX_TEXT_H

#include <stdint.h>

#include <string>
#include <vector>

namespace ptx {

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

} // namespace ptx

#endif
