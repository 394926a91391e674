// Loans of processors among the team's threads while other programs want them.
//
// Linux often runs a busy program alone on one processor and two threads of a team on another, and a thread that does
// not run holds up the others for a time slice. So a thread that waits lends its processor to one that has work and
// does not run.
//
//     PLACES_OFF <-- decided at the start --> PLACES_FREE --- first loan ---> PLACES_BOUND
//          ^                                     |   ^                          |    |
//          |                                     |   +-- 1 s without a loan ----+    |
//          +-- a mask is not as left, or cannot be set: for the rest of the run -----+
//
// FREE: every thread may use all processors. BOUND: each worker is bound to a place, a processor of its own, or to that
// of the caller if it was lent to it. The caller is put on its place and may leave it, because programs and threads
// that it starts inherit its mask. A worker exchanges its place with a caller that does not run.
//
// Somebody else who changes a mask (taskset -p of one thread or of all, a cpuset) ends the loans: that mask is kept,
// and the other threads are free. A thread that is freed requests all processors if the run was given all of its
// cpuset, so that it follows a cpuset that grows, also after it has shrunk.
//
// All functions take the number of the calling thread, 0 for the caller of a loop, and times of CLOCK_MONOTONIC.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { PLACES_LOOK_NS = 8000 }; // of waiting, between two looks at another thread: its clock moves in this time

// What a thread that waits has seen of one that has work. It begins with PLACES_UNSEEN.
typedef struct {
    int thread;
    uint64_t ran_ns; // time of a processor that it had received
} PlacesSeen;
#define PLACES_UNSEEN ((PlacesSeen){.thread = -1})

// Decides for this number of threads, before they enter. NULL: processors are lent; else why not.
const char *places_open(int threads);
void places_enter(int thread);
bool places_lent(void);             // whether they still are
void places_begin(uint64_t now_ns); // by the caller of a loop before it; the caller has work from then on
void places_work(int thread, bool has);
// By a thread that has none and looks again and again. Returns whether another has its processor now: it should sleep.
bool places_lend(int thread, PlacesSeen *seen, uint64_t now_ns);
void places_return(int thread); // from a processor that was lent to it
