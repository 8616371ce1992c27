#include "tests/suite/fault_suite.h"

int main(void) { return fault_suite("host"); }
