/* SPDX-License-Identifier: MIT */
/* Mixed-integer linear programmes, solved exactly by GLPK, which is opened at run time: where a system has none, tests
 * that ask for it are skipped. Any failure fails the test. */
#ifndef TESTS_POLICIES_MILP_H
#define TESTS_POLICIES_MILP_H

#include <stdbool.h>

/* Whether there is a GLPK. */
bool milp_is_there(void);

typedef struct milp milp;

milp *milp_create(void);
void milp_destroy(milp *m);

/* A variable from 0 to 1, whole or not, and its cost. Returns its number. */
int milp_variable(milp *m, bool whole, double cost);
/* A row: the sum of what milp_term adds to it is at most `most`. */
void milp_row(milp *m, double most);
/* Adds a term to the last row. variable < 0: none. */
void milp_term(milp *m, int variable, double factor);

/* Returns the least sum of the variables' costs; < 0: no values satisfy the rows. */
double milp_solve(milp *m);

#endif
