// Lists other processes that use the GPU, through the driver's management library (NVML) when there is one.
#pragma once

#include <stddef.h>

// "pid 4711 holds 3.1 GiB, pid 12 holds 200 MiB", without this process; "" when there is none or NVML cannot list them.
void nvml_other_processes(char *text, size_t size);
