/* A device whose Nth call fails, for N from the manager's creation to the end of its iterations: a clear status,
 * nothing left behind, and a manager that goes on. */
#ifndef TESTS_SUITE_FAULT_SUITE_H
#define TESTS_SUITE_FAULT_SUITE_H

/* What main returns. */
int fault_suite(const char *device);

#endif
