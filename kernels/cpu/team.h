// The threads of the CPU backend, which run loops together. A loop is cut into more pieces than there are threads, and
// each thread takes the next piece when it has finished one: a preempted thread delays one piece, not its whole share,
// and one that is never run delays nothing. The threads do not appear in the results: pieces are independent, and sums
// have an order of their own.
//
//     TEAM_LOOP(scale_numbers, size_t, (float *, x), (float, factor)) {
//         for (size_t i = first; i < end; i++) x[i] *= factor;
//     }
//     scale_numbers(count, 4096, x, factor);
//
// defines and calls a loop over count numbers, each piece of which begins at a multiple of 4096.
#pragma once
#include <stddef.h>

enum { TEAM_MAX = 4096 };

// The threads of the loops that follow, from 1 to TEAM_MAX; the caller is one of them. -1 after fail(): they
// cannot be started (71), or do not share a loop (70).
int team_set_threads(int threads);
int team_threads(void);
const char *team_no_loans(void); // why threads lend no processors (places.h); NULL: they do
// The number of the thread that calls it, in 0 .. team_threads() - 1: the index of its scratch memory.
int team_thread(void);

// Calls work(first, end, data) for pieces that together are [0, count); `first` is a multiple of `unit`. One unit, a
// loop within a piece, and a loop of a second thread of the program while the team is busy run on the calling thread.
typedef void TeamWork(size_t first, size_t end, const void *data);
void team_run(size_t count, size_t unit, TeamWork *work, const void *data);

// Defines name(count, unit, ...), whose parameters are given as (type, name). The braces that follow are its loop from
// `first` to `end`, which have the type Index.
#define TEAM_LOOP(name, Index, ...)                                                                                    \
    typedef struct {                                                                                                   \
        TEAM_EACH(TEAM_MEMBER, __VA_ARGS__)                                                                            \
    } name##_data;                                                                                                     \
    static void name##_range(Index first, Index end TEAM_EACH(TEAM_PARAMETER, __VA_ARGS__));                           \
    static void name##_work(size_t first, size_t end, const void *data) {                                              \
        const name##_data *loop = data;                                                                                \
        name##_range((Index)first, (Index)end TEAM_EACH(TEAM_ARGUMENT, __VA_ARGS__));                                  \
    }                                                                                                                  \
    static void name(Index loop_count, Index loop_unit TEAM_EACH(TEAM_PARAMETER, __VA_ARGS__)) {                       \
        team_run((size_t)loop_count, (size_t)loop_unit, name##_work,                                                   \
                 &(const name##_data){TEAM_EACH(TEAM_VALUE, __VA_ARGS__)});                                            \
    }                                                                                                                  \
    static void name##_range(Index first, Index end TEAM_EACH(TEAM_PARAMETER, __VA_ARGS__))

#define TEAM_MEMBER(type, name)                           type name;
#define TEAM_PARAMETER(type, name)                        , type name
#define TEAM_ARGUMENT(type, name)                         , loop->name
#define TEAM_VALUE(type, name)                            name,
#define TEAM_EACH(f, ...)                                 TEAM_COUNT(__VA_ARGS__, 9, 8, 7, 6, 5, 4, 3, 2, 1, )(f, __VA_ARGS__)
#define TEAM_COUNT(a, b, c, d, e, f, g, h, i, count, ...) TEAM_EACH_##count
#define TEAM_EACH_1(f, x)                                 f x
#define TEAM_EACH_2(f, x, ...)                            f x TEAM_EACH_1(f, __VA_ARGS__)
#define TEAM_EACH_3(f, x, ...)                            f x TEAM_EACH_2(f, __VA_ARGS__)
#define TEAM_EACH_4(f, x, ...)                            f x TEAM_EACH_3(f, __VA_ARGS__)
#define TEAM_EACH_5(f, x, ...)                            f x TEAM_EACH_4(f, __VA_ARGS__)
#define TEAM_EACH_6(f, x, ...)                            f x TEAM_EACH_5(f, __VA_ARGS__)
#define TEAM_EACH_7(f, x, ...)                            f x TEAM_EACH_6(f, __VA_ARGS__)
#define TEAM_EACH_8(f, x, ...)                            f x TEAM_EACH_7(f, __VA_ARGS__)
#define TEAM_EACH_9(f, x, ...)                            f x TEAM_EACH_8(f, __VA_ARGS__)
