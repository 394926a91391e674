// The processor time that the threads of this process have received.
#pragma once

#include <stdint.h>

typedef struct {
    uint64_t used_ns; // by all threads
    // Threads were ready, and other programs had the processors; 0 if the kernel does not count it.
    uint64_t waited_ns;
} ProcessorTime;

// Since the process began; waited_ns counts the threads that there are now.
ProcessorTime processor_time(void);

// Of the calling thread alone, since it began.
ProcessorTime processor_time_of_thread(void);

// The share of the time between the two in which threads were ready and had no processor, 0 to 1.
double processor_lost(ProcessorTime from, ProcessorTime to);
