// The threads of the CPU backend. gcc compiles `#pragma omp parallel for` to calls of GOMP_parallel, clang to calls of
// __kmpc_fork_call; in files that include this header they are calls of the team. A region is cut into more pieces than
// there are threads, and each thread takes the next piece when it has finished one: a thread that the system does not
// run holds up a piece and not its share, and one that is never run holds up nothing. The threads do not appear in the
// results: a loop's iterations are independent, and sums have an order of their own.
//
// Inside a region there is no barrier: `omp for`, `critical` and reductions are not supported, nor are schedules other
// than static. A region inside a region runs on the thread that meets it.
#pragma once

void team_set_threads(int threads); // of the regions that follow, from 1 to TEAM_MAX; the caller is one of them
int team_threads(void);
// The number of the thread that calls it, in 0 .. team_threads() - 1: the index of its scratch memory.
int team_thread(void);

enum { TEAM_MAX = 4096 };

// Called by code of gcc.
void team_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags);
int team_piece(void);
int team_pieces(void);
// Called by code of clang (team_clang.c). Between begin and end the calling thread is alone.
void team_begin_alone(void);
void team_end_alone(void);
void team_kmpc_fork_call(void *place, int count, void *loop, ...);
int team_kmpc_thread(void *place);
void team_kmpc_begin_alone(void *place, int thread);
void team_kmpc_end_alone(void *place, int thread);
void team_kmpc_static_4(void *place, int thread, int schedule, int *last, int *lower, int *upper, int *stride, int step,
                        int chunk);
void team_kmpc_static_4u(void *place, int thread, int schedule, int *last, unsigned *lower, unsigned *upper,
                         unsigned *stride, unsigned step, unsigned chunk);
void team_kmpc_static_8(void *place, int thread, int schedule, int *last, long *lower, long *upper, long *stride,
                        long step, long chunk);
void team_kmpc_static_8u(void *place, int thread, int schedule, int *last, unsigned long *lower, unsigned long *upper,
                         unsigned long *stride, unsigned long step, unsigned long chunk);
void team_kmpc_static_end(void *place, int thread);
#ifdef __clang__
__asm__(".set __kmpc_fork_call, team_kmpc_fork_call\n"
        ".set __kmpc_global_thread_num, team_kmpc_thread\n"
        ".set __kmpc_serialized_parallel, team_kmpc_begin_alone\n"
        ".set __kmpc_end_serialized_parallel, team_kmpc_end_alone\n"
        ".set __kmpc_for_static_init_4, team_kmpc_static_4\n"
        ".set __kmpc_for_static_init_4u, team_kmpc_static_4u\n"
        ".set __kmpc_for_static_init_8, team_kmpc_static_8\n"
        ".set __kmpc_for_static_init_8u, team_kmpc_static_8u\n"
        ".set __kmpc_for_static_fini, team_kmpc_static_end");
#else
__asm__(".set GOMP_parallel, team_parallel\n"
        ".set omp_get_thread_num, team_piece\n"
        ".set omp_get_num_threads, team_pieces");
#endif
