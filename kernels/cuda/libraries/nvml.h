// Who uses how much of the GPU, from the driver's management library (NVML) when there is one.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// "pid 4711 holds 3.1 GiB, pid 12 holds 200 MiB", without this process; "" without others, or if NVML cannot list them.
void nvml_other_processes(char *text, size_t size);

// Used memory of a card, by all processes, without the driver's reserve; creates no context. -1: not known.
double nvml_used_bytes(int card);

// Used and free bytes of this process's card, by all processes, and the share of the last moment (a sixth of a second
// to a second) in which a kernel ran. False: not known. Keeps NVML open.
bool nvml_usage(double *used, double *free_bytes, double *busy);
