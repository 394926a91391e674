// Host memory that is not page-locked. The runtime copies it inside the call, after the stream's work so far.
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>

// Before a copy in a stream: waits for that work if the memory is not page-locked, so that a GPU that hangs is noticed.
void cuda_wait_before_pageable(cudaStream_t stream, const void *host, size_t bytes, const char *what);
