// The processors of the team's threads while other programs want them.
//
// Linux often gives a busy program a processor alone and two threads of a team another, and a thread that it does not
// run holds up the others for a time slice. So once this is seen, each thread has a place, a processor of its own. A
// thread that waits lends its place to one that has work and does not run, or exchanges places with the caller. The
// threads are free again a second after the last loan. All of this only where the team has a thread for each processor
// that it may use. With fewer, the system moves a thread to an idle processor, and a place would keep it from there. If
// somebody gives the run other processors, its threads keep to them.
//
// All functions take the number of the calling thread, 0 for the caller of a region, and times of CLOCK_MONOTONIC.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// What a thread that waits has seen of one that has work. It begins with PLACES_UNSEEN.
typedef struct {
    int thread;
    uint64_t ran_ns; // time of a processor that it had received
} PlacesSeen;
#define PLACES_UNSEEN ((PlacesSeen){.thread = -1})

void places_set_threads(int threads); // outside of a region, by the thread that calls them
void places_enter(int thread);        // before all others
void places_begin(uint64_t now_ns);   // by the caller of a region before it; the caller has work from then on
void places_work(int thread, bool has);
// By a thread that has none and looks again and again. Returns whether another has its processor now: it should sleep.
bool places_lend(int thread, PlacesSeen *seen, uint64_t now_ns);
void places_return(int thread); // from a processor that was lent to it
