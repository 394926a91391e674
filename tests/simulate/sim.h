// The simulator: processes of the loader and of trainers as coroutines of one thread, under a virtual clock. Everything
// that is left to chance comes from the seed of a history, so that a seed repeats it bit for bit. The code of the
// loader and of its client is that of the programs; what they call of the system is replaced when the simulator is
// linked (SIM_WRAP in the Makefile), and ZeroMQ by sim_zmq.c.
//
// A history runs in a process of its own (main.c), which ends with it: a process of the simulation that is killed may
// leave memory behind.
#pragma once

#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

#define US 1000ull
#define MS 1000000ull
#define S  1000000000ull

typedef struct Task Task; // a thread
typedef struct Node {     // a process
    const char *name;
    bool alive;
    uint64_t stalled_until, clock_offset;
    unsigned tasks;
} Node;

// What a history shows to main.c, in shared memory.
typedef struct {
    uint64_t hash, events, now, batches, changes, resends, reconnects, kills, faults, controls;
} Summary;
extern Summary *sim_summary;
extern bool sim_verbose;

// --- sim_core.c: chance, time, tasks

uint64_t sim_random(void);
uint64_t sim_below(uint64_t n);       // 0 to n - 1
bool sim_chance(unsigned thousandth); // of 1000
uint64_t sim_spread(uint64_t a);      // mostly about `a`, seldom up to 100 times that
extern uint64_t sim_now;              // ns
extern Node *sim_node;                // that runs; NULL: the simulator itself
void sim_seed(uint64_t seed);
void sim_event(const char *what, uint64_t a, uint64_t b); // a step of the history
_Noreturn void sim_fail(const char *format, ...) PRINTF_LIKE(1, 2);

typedef void TaskMain(void *self);
Node *node_start(const char *name, TaskMain *main, void *self); // ends with its main task
Task *task_start(Node *node, TaskMain *main, void *self, uint64_t delay_ns);
void node_kill(Node *node);               // kill -9
void node_stall(Node *node, uint64_t ns); // SIGSTOP, and SIGCONT later
void task_sleep(uint64_t ns);
// Waits until ready(self), or for ns (UINT64_MAX: for ever). Whether it is ready.
bool task_wait(bool (*ready)(void *self), void *self, uint64_t ns);
void sim_run(void); // until no task is left

// --- sim_zmq.c: the network

typedef struct {
    uint64_t latency_ns, bytes_per_ms;
    unsigned lossy, damaged; // thousandths of messages in which the connection ends, and of which a bit changes
} Net;
extern Net sim_network;
uint64_t net_next(void); // when something happens; UINT64_MAX: never
void net_run(void);      // does what is due
void net_node_ended(const Node *node);
bool net_break(uint64_t which);               // ends a connection
bool net_freeze(uint64_t which, uint64_t ns); // nothing passes for so long

// --- sim_system.c

extern bool sim_disk_full;
extern Node *sim_disk_user;                 // that waits for the disk, or NULL
extern uint64_t sim_disk_ns, sim_decode_ns; // how long a call and a frame take
extern unsigned sim_disk_errors; // thousandths: of frames that cannot be read; of files not written, 10 times
extern uint64_t sim_io;          // counts the calls after which a descriptor may be readable
void system_node_ended(const Node *node);
void system_signal(const Node *node, int number);
