/* SPDX-License-Identifier: MIT */
#include "tests/policies/milp.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct milp {
    int n_variables, n_rows, n_terms;
    bool *whole;       /* per variable: it must be 0 or 1 */
    double *cost;      /* per variable */
    double *most;      /* per row: its upper bound */
    int *row, *column; /* per term; GLPK's arrays begin at 1 */
    double *factor;
};

#if __has_include(<glpk.h>)
#include <glpk.h>

#define FUNCTIONS(X)                                                                                                   \
    X(glp_create_prob)                                                                                                 \
    X(glp_delete_prob)                                                                                                 \
    X(glp_add_rows)                                                                                                    \
    X(glp_add_cols)                                                                                                    \
    X(glp_set_row_bnds)                                                                                                \
    X(glp_set_col_bnds)                                                                                                \
    X(glp_set_col_kind)                                                                                                \
    X(glp_set_obj_coef)                                                                                                \
    X(glp_load_matrix)                                                                                                 \
    X(glp_init_iocp)                                                                                                   \
    X(glp_intopt)                                                                                                      \
    X(glp_mip_status)                                                                                                  \
    X(glp_mip_obj_val)                                                                                                 \
    X(glp_term_out)                                                                                                    \
    X(glp_free_env)

#define DECLARE(name) static __typeof__(&name) p_##name;
FUNCTIONS(DECLARE)

static void *library;

bool milp_is_there(void) {
    if (!library) library = dlopen("libglpk.so.40", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
#define FIND(name) *(void **)&p_##name = dlsym(library, #name);
    FUNCTIONS(FIND)
    return p_glp_create_prob != NULL;
}

double milp_solve(milp *m) {
    p_glp_term_out(GLP_OFF);
    glp_prob *p = p_glp_create_prob();
    glp_iocp options;
    p_glp_add_cols(p, m->n_variables);
    p_glp_add_rows(p, m->n_rows);
    for (int i = 0; i < m->n_variables; i++) {
        p_glp_set_col_bnds(p, i + 1, GLP_DB, 0, 1);
        p_glp_set_col_kind(p, i + 1, m->whole[i] ? GLP_IV : GLP_CV);
        p_glp_set_obj_coef(p, i + 1, m->cost[i]);
    }
    for (int i = 0; i < m->n_rows; i++) p_glp_set_row_bnds(p, i + 1, GLP_UP, 0, m->most[i]);
    p_glp_load_matrix(p, m->n_terms, m->row - 1, m->column - 1, m->factor - 1);
    p_glp_init_iocp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.presolve = options.gmi_cuts = options.mir_cuts = options.cov_cuts = GLP_ON;
    const int failed = p_glp_intopt(p, &options);
    const bool solved = failed == 0 && p_glp_mip_status(p) == GLP_OPT;
    if (!solved && failed != GLP_ENOPFS && p_glp_mip_status(p) != GLP_NOFEAS) fail_msg("GLPK: %d", failed);
    const double least = solved ? p_glp_mip_obj_val(p) : -1;
    p_glp_delete_prob(p);
    p_glp_free_env();
    return least;
}

#else

bool milp_is_there(void) { return false; }

double milp_solve(milp *m) {
    (void)m;
    fail_msg("built without GLPK");
    return -1;
}

#endif

static void *grow(void *array, int n, size_t bytes) {
    array = realloc(array, (size_t)(n + 1) * bytes);
    assert_non_null(array);
    return array;
}

milp *milp_create(void) {
    milp *m = calloc(1, sizeof *m);
    assert_non_null(m);
    return m;
}

void milp_destroy(milp *m) {
    free(m->whole);
    free(m->cost);
    free(m->most);
    free(m->row);
    free(m->column);
    free(m->factor);
    free(m);
}

int milp_variable(milp *m, bool whole, double cost) {
    m->whole = grow(m->whole, m->n_variables, sizeof *m->whole);
    m->cost = grow(m->cost, m->n_variables, sizeof *m->cost);
    m->whole[m->n_variables] = whole;
    m->cost[m->n_variables] = cost;
    return m->n_variables++;
}

void milp_row(milp *m, double most) {
    m->most = grow(m->most, m->n_rows, sizeof *m->most);
    m->most[m->n_rows++] = most;
}

void milp_term(milp *m, int variable, double factor) {
    if (variable < 0) return;
    m->row = grow(m->row, m->n_terms, sizeof *m->row);
    m->column = grow(m->column, m->n_terms, sizeof *m->column);
    m->factor = grow(m->factor, m->n_terms, sizeof *m->factor);
    m->row[m->n_terms] = m->n_rows;
    m->column[m->n_terms] = variable + 1;
    m->factor[m->n_terms++] = factor;
}
