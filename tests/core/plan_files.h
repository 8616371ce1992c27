/* SPDX-License-Identifier: MIT */
/* For tests of files of plans: random plans with their programs. A failure fails the test. */
#ifndef TESTS_CORE_PLAN_FILES_H
#define TESTS_CORE_PLAN_FILES_H

#include "mm/core/plan/plan_file.h"

/* A random plan of a random graph, in all forms that plans have, by the seed. */
typedef struct plan_world {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_place *places;
    mm_limits limits; /* exactly what the plan needs */
    mm_plan *plan;
    mm_program program;
} plan_world;

plan_world plan_world_create(uint64_t seed);
plan_world plan_world_create_of(uint64_t seed, int layers);
void plan_world_destroy(plan_world *world);
mm_plan_view plan_world_view(const plan_world *world);

mm_plan_view plan_files_view(const mm_plan_file *file);

#endif
