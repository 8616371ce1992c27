/* The one table of devices. A device that needs more than this machine's C library is an entry behind a define of its
 * own, MM_DEVICE_<NAME>, that BUILD sets (with the sources and the libraries it needs) when its flag is on: no other
 * file knows which devices a build has. */
#include "mm/device/device_host.h"

static const mm_device_ops *const devices[] = {
    &mm_device_host_ops,
};

const mm_device_ops *mm_device_table(size_t i) { return i < sizeof devices / sizeof devices[0] ? devices[i] : NULL; }
