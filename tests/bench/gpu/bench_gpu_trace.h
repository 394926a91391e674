// A step operation by operation: a backend whose operations are those of another one between two time stamps. On CUDA
// the time stamps are events on the stream, so the host does not wait within the step.
#pragma once

#include "kernels/backend.h"

// The operations of `real`, timed; graph_begin always returns true, so that every operation is launched. `head` is the
// padded vocabulary: a product with that many rows is listed as the head's. One trace at a time.
const Backend *trace_open(const Backend *real, int head);
void trace_start(void); // discards the times so far and starts the clock of the step
// Waits for the end of the step. Prints a JSON line for each operation and shape, "between operations" for the rest,
// and "step", which is their sum. peak: of matrix products, in FLOP/s, of which each has a share.
void trace_print(int B, double peak);
void trace_close(void);
