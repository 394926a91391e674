// Chance, virtual time, and the tasks.
#include "tests/simulate/sim.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { TASKS_MAX = 96, STACK_BYTES = 256 << 10, TURNS_MAX = 2000000 };

struct Task {
    Node *node;
    jmp_buf at; // where it goes on
    bool began;
    void *stack;
    TaskMain *main;
    void *self;
    bool (*ready)(void *self);
    void *ready_self;
    uint64_t until, run_ns; // run_ns: when it goes on, 0 = not known yet
    bool is_main, used, ended;
    Error error; // pending in it
};

Summary *sim_summary;
bool sim_verbose;
uint64_t sim_now;
Node *sim_node;

static uint64_t random_state, turns;
static Task tasks[TASKS_MAX];
static Task *running;
static jmp_buf scheduler;

// --- chance (splitmix64) and events

void sim_seed(uint64_t seed) { random_state = seed * 0x9E3779B97F4A7C15ull + 1; }

uint64_t sim_random(void) {
    uint64_t z = random_state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

uint64_t sim_below(uint64_t n) { return (uint64_t)((__uint128_t)sim_random() * n >> 64); }

bool sim_chance(unsigned thousandth) { return sim_below(1000) < thousandth; }

uint64_t sim_spread(uint64_t a) {
    uint64_t ns = a / 2 + sim_below(a + 1);
    return sim_chance(10) ? ns * (1 + sim_below(100)) : ns;
}

static void hash_in(uint64_t value) {
    sim_summary->hash = (sim_summary->hash ^ value) * 0x9FB21C651E98DF25ull;
    sim_summary->hash ^= sim_summary->hash >> 32;
}

void sim_event(const char *what, uint64_t a, uint64_t b) {
    for (const char *at = what; *at; at++) hash_in((uint8_t)*at);
    hash_in(sim_now), hash_in(a), hash_in(b);
    if (sim_verbose)
        fprintf(stderr, "%12.6f ms %-10s %s %llx %llx\n", (double)sim_now / 1e6, sim_node ? sim_node->name : "", what,
                (unsigned long long)a, (unsigned long long)b);
    sim_summary->now = sim_now;
    sim_summary->events++;
}

void sim_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%.6f ms, %s: ", (double)sim_now / 1e6, sim_node ? sim_node->name : "simulator");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    _exit(3);
}

// --- tasks

static void run_task(void) {
    running->main(running->self);
    running->ended = true;
    _longjmp(scheduler, 1);
}

Task *task_start(Node *node, TaskMain *main, void *self, uint64_t delay_ns) {
    Task *task = tasks;
    while (task < tasks + TASKS_MAX && task->used) task++;
    if (task == tasks + TASKS_MAX) sim_fail("more than %d tasks", TASKS_MAX);
    void *stack = task->stack;
    if (!stack)
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) sim_fail("no memory for a task");
    memset(task, 0, sizeof *task);
    *task = (Task){.node = node, .stack = stack, .main = main, .self = self, .used = true};
    task->until = sim_now + delay_ns;
    node->tasks++;
    return task;
}

Node *node_start(const char *name, TaskMain *main, void *self) {
    Node *node = calloc(1, sizeof *node);
    if (!node) sim_fail("no memory");
    *node = (Node){.name = name, .alive = true, .clock_offset = S * (1 + sim_below(1000000))};
    task_start(node, main, self, sim_below(100 * US))->is_main = true;
    sim_event("start", 0, 0);
    return node;
}

static void task_free(Task *task) {
    task->used = false;
    task->node->tasks--;
}

static void node_end(Node *node) {
    node->alive = false;
    for (Task *task = tasks; task < tasks + TASKS_MAX; task++)
        if (task->used && task->node == node) task_free(task);
    net_node_ended(node);
    system_node_ended(node);
}

void node_kill(Node *node) {
    if (!node->alive) return;
    if (node == sim_node) sim_fail("a process kills itself");
    sim_event(node->name, 9, 0);
    node_end(node);
}

void node_stall(Node *node, uint64_t ns) {
    if (node->stalled_until < sim_now + ns) node->stalled_until = sim_now + ns;
}

bool task_wait(bool (*ready)(void *self), void *self, uint64_t ns) {
    Task *task = running;
    if (!task) sim_fail("the simulator itself would wait");
    task->ready = ready, task->ready_self = self;
    task->until = ns < UINT64_MAX - sim_now ? sim_now + ns : UINT64_MAX;
    task->run_ns = 0;
    task->error.code = 0;
    if (err_code()) err_take(&task->error);
    const int number = errno;
    if (_setjmp(task->at) == 0) _longjmp(scheduler, 1);
    errno = number;
    if (task->error.code) err_give(&task->error);
    return ready && ready(self);
}

void task_sleep(uint64_t ns) { task_wait(NULL, NULL, ns); }

// When the task goes on, if nothing happens before; a task that is ready gets its time now, by chance.
static uint64_t task_time(Task *task) {
    if (!task->run_ns) {
        if (task->until > sim_now && !(task->ready && task->ready(task->ready_self))) return task->until;
        task->run_ns = sim_now + sim_spread(5 * US);
    }
    return task->run_ns > task->node->stalled_until ? task->run_ns : task->node->stalled_until;
}

// On a stack of its own; from there on setjmp and longjmp change stacks without a system call.
static void begin(Task *task) {
    ucontext_t context;
    task->began = true;
    getcontext(&context);
    context.uc_stack.ss_sp = task->stack, context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&context, run_task, 0);
    setcontext(&context);
}

static void go_on(Task *task) {
    running = task, sim_node = task->node;
    if (_setjmp(scheduler)) return;
    if (!task->began) begin(task);
    _longjmp(task->at, 1);
}

static void resume(Task *task) {
    if (++turns > TURNS_MAX) sim_fail("more than %d turns: something goes round in a circle", TURNS_MAX);
    go_on(task);
    running = NULL, sim_node = NULL;
    if (!task->ended || !task->used) return;
    if (task->is_main)
        node_end(task->node);
    else
        task_free(task);
}

void sim_run(void) {
    for (;;) {
        Task *next = NULL;
        uint64_t when = net_next();
        for (Task *task = tasks; task < tasks + TASKS_MAX; task++) {
            if (!task->used || task->ended) continue;
            const uint64_t time = task_time(task);
            if (time < when) when = time, next = task;
        }
        if (when == UINT64_MAX) return;
        if (when > sim_now) sim_now = when;
        if (!next)
            net_run();
        else if (next->run_ns)
            resume(next);
    }
}
