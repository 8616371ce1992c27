/* SPDX-License-Identifier: MIT */
/* GPUs by name. gpus.csv has what their data sheets say, assumptions.csv what share of that work reaches; a machine's
 * rates are made of both. Such rates are estimates, and whoever prints them says so (GPU_ESTIMATED). Both tables are
 * compiled in; the README here explains their columns and compares the rates with measured ones. */
#ifndef TOOLS_FACTS_GPU_H
#define TOOLS_FACTS_GPU_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/core/status.h"

#define GPU_ESTIMATED "estimated from data sheet and assumptions"

/* Generations of architectures, in the order of their years: the columns of assumptions.csv. */
typedef enum gpu_generation {
    GPU_KEPLER,
    GPU_MAXWELL,
    GPU_PASCAL,
    GPU_VOLTA,
    GPU_TURING,
    GPU_AMPERE,
    GPU_ADA,
    GPU_HOPPER,
    GPU_BLACKWELL,
    GPU_GENERATIONS
} gpu_generation;

/* A row of gpus.csv. 0: not known, or not there. */
typedef struct gpu {
    const char *name;
    const char *aliases; /* other names, separated by ';' */
    gpu_generation generation;
    double memory_gib;                                         /* as sold */
    double ecc_in_memory;                                      /* 1: bits of error correction lie in that memory */
    double bandwidth_gb_per_s, link_gb_per_s;                  /* link: to the host, each way; both in theory */
    double fp32_tflops, tf32_tflops, bf16_tflops, fp16_tflops; /* peaks */
    double l2_mib, multiprocessors;
    const char *source;
} gpu;

/* A row of assumptions.csv: a share, a time or a rate. Value 0: not for this generation. */
typedef struct gpu_assumption {
    const char *name;
    double of[GPU_GENERATIONS];
    const char *source;
} gpu_assumption;

extern const gpu gpu_table[];
extern const size_t gpu_table_n;
extern const gpu_assumption gpu_assumptions[];
extern const size_t gpu_assumptions_n;

const char *gpu_generation_name(gpu_generation generation);

/* Finds a GPU by its name or an alias; case, spaces and punctuation do not count, nor do the words NVIDIA, GeForce and
 * Tesla at the beginning, so names that nvidia-smi prints are found. MM_ERR_INVALID: several have that name, or begin
 * with it; the message lists them. MM_ERR_NOT_FOUND: the message has the nearest name. */
MM_CHECKED mm_status gpu_find(const char *name, const gpu **gpu_out);

/* The memory that programs find free, as far as known: as sold, less what error correction and the driver take. */
int64_t gpu_memory_bytes(const gpu *g);
/* What the CUDA context and libraries take of it. */
int64_t gpu_context_bytes(const gpu *g);
/* The budget of plans for which none is given: the rest. */
int64_t gpu_budget_bytes(const gpu *g);

/* Whether it multiplies maps of bf16. */
bool gpu_has_bf16(const gpu *g);

/* The GPU as a machine file (machine.h), which the caller releases. Products of f32 maps are TF32's where that is
 * faster, as in the machine files here. MM_ERR_NOMEM. */
MM_CHECKED mm_status gpu_machine_json(const gpu *g, json_t **root_out);

#endif
