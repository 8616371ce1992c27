/* The CUDA device beyond what every device does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mm/device/device_cuda.h"
#include "tests/cuda_emulation/control.h"

static void it_opens(void **state) {
    (void)state;
    mm_device *device;
    assert_int_equal(mm_device_create("cuda", NULL, &device), MM_OK);
    mm_device_destroy(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_opens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
