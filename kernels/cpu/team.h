// The threads of the CPU backend. gcc compiles `#pragma omp parallel for` to calls of GOMP_parallel; in files that
// include this header they are calls of the team. A region is cut into more pieces than there are threads, and each
// thread takes the next piece when it has finished one: a thread that the system does not run holds up a piece and not
// its share, and one that is never run holds up nothing. The threads do not appear in the results: a loop's iterations
// are independent, and sums have an order of their own.
//
// Inside a region there is no barrier: `omp for`, `critical` and reductions are not supported, nor are schedules other
// than static. A region inside a region runs on the thread that meets it. clang calls other functions: its regions run
// on the calling thread.
#pragma once

void team_set_threads(int threads); // of the regions that follow, from 1 to TEAM_MAX; the caller is one of them
int team_threads(void);
int team_thread(
    void); // the number of the thread that calls it, in 0 .. team_threads() - 1: the index of its scratch memory

enum { TEAM_MAX = 4096 };

// What gcc calls.
void team_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags);
int team_piece(void);
int team_pieces(void);
__asm__(".set GOMP_parallel, team_parallel\n"
        ".set omp_get_thread_num, team_piece\n"
        ".set omp_get_num_threads, team_pieces");
