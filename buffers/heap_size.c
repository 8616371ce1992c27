#include "buffers/heap_size.h"
