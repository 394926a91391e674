// The processors that this process was given.
//
// An OpenMP library binds the first thread of a program before main() if OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY
// is set, and places its own threads elsewhere. Our threads, and the programs that we start, would inherit the one
// processor. So the mask is read before any library runs.
#pragma once

// Gives the calling thread the processors that the process was given. For main(), before it starts threads. If that is
// not permitted, it prints a warning.
void processors_restore(void);
