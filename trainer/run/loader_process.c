// A loader of our own.
#include "trainer/run/loader_process.h"
#include "common/err.h"
#include "common/log.h"
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// `loader` in the folder of our executable, or `millrace-loader` as it is installed.
static int find_loader(char path[PATH_MAX_BYTES]) {
    char self[PATH_MAX_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 32);
    if (length < 0) return fail_errno("cannot read /proc/self/exe");
    self[length] = 0;
    char *name = strrchr(self, '/') + 1;
    static const char *const names[] = {"loader", "millrace-loader"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, 32, "%s", names[i]);
        snprintf(path, PATH_MAX_BYTES, "%s", self);
        if (access(path, X_OK) == 0) return 0;
    }
    return fail(EX_NOINPUT, "there is no 'loader' beside '%s'", self);
}

// In a process group of its own, so that Ctrl-C stops the trainer first and the loader with it.
static int spawn(Child *child) {
    char *arguments[] = {child->program,      (char[]){"serve"},
                         child->dataset,      (char[]){"--endpoint"},
                         child->endpoint,     (char[]){"--die-with-parent"},
                         (char[]){"--quiet"}, NULL};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    int error = posix_spawn(&child->pid, child->program, NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    child->started_ns = clock_ns();
    if (!error) return 0;
    child->pid = 0;
    errno = error;
    return fail_errno("cannot start '%s'", child->program);
}

static int ended(Child *child, int status) {
    int code = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EX_PEER;
    child->pid = 0;
    return fail(code, "the loader started for '%s' ended (exit %d): see its line above", child->dataset, code);
}

// The loader binds ctl.sock last.
static int wait_until_ready(Child *child) {
    char socket_path[96];
    snprintf(socket_path, sizeof socket_path, "%s/ctl.sock", child->place);
    while (access(socket_path, F_OK)) {
        int status;
        if (waitpid(child->pid, &status, WNOHANG) == child->pid) return ended(child, status);
        usleep(2000);
    }
    return 0;
}

// /tmp/millrace-UID/.run.tmp.PID, after sweeping away those of runs that were killed.
static int make_place(Child *child) {
    char base[48];
    struct stat st;
    snprintf(base, sizeof base, "/tmp/millrace-%u", (unsigned)getuid());
    if (mkdir(base, 0700) < 0 && errno != EEXIST) return fail_errno("cannot create '%s'", base);
    if (lstat(base, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077))
        return fail(EX_PERMISSION, "'%s' is not ours alone: remove it, or name a --loader", base);
    dir_sweep(base);
    snprintf(child->place, sizeof child->place, "%.*s/.run.tmp.%d", 47, base, (int)getpid());
    snprintf(child->endpoint, sizeof child->endpoint, "ipc://%s", child->place);
    return mkdir(child->place, 0700) < 0 && errno != EEXIST ? fail_errno("cannot create '%s'", child->place) : 0;
}

static bool is_dataset(const char *path) {
    char manifest[PATH_MAX_BYTES];
    snprintf(manifest, sizeof manifest, "%.*s/dataset.jsonl", PATH_MAX_BYTES - 32, path);
    return access(manifest, F_OK) == 0;
}

int child_open(Child *child, const Config *config) {
    *child = (Child){0};
    if (*config->loader || !*config->dataset) return 0;
    snprintf(child->dataset, sizeof child->dataset, "%s", config->dataset);
    if (!is_dataset(child->dataset)) // nanoGPT's place
        snprintf(child->dataset, sizeof child->dataset, "data/%.*s", PATH_MAX_BYTES - 8, config->dataset);
    if (!is_dataset(child->dataset))
        return fail(EX_NOINPUT, "'%s' is no dataset: make one with shardtool tokenize -o DIR, or name a --loader",
                    config->dataset);
    if (find_loader(child->program) < 0 || make_place(child) < 0) return -1;
    if (spawn(child) < 0 || wait_until_ready(child) < 0) {
        child_close(child);
        return -1;
    }
    return 0;
}

static volatile int *watched;

static void on_end(int number) {
    (void)number;
    if (!*watched) *watched = CHILD_ENDED;
}

void child_watch(volatile int *flag) {
    struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigemptyset(&action.sa_mask);
    watched = flag;
    sigaction(SIGCHLD, &action, NULL);
}

int child_revive(Child *child) {
    const uint64_t least_ns = 5000000000;
    int status;
    if (!child->pid || waitpid(child->pid, &status, WNOHANG) != child->pid) return 0;
    if (!WIFSIGNALED(status)) return ended(child, status);
    child->pid = 0;
    if (clock_ns() - child->started_ns < least_ns)
        return fail(EX_PEER, "the loader was killed (signal %d) within seconds of its start", WTERMSIG(status));
    log_warn("the loader was killed (signal %d): starting it again", WTERMSIG(status));
    return spawn(child);
}

void child_feed(const Child *child, const Config *config, FeedConfig *feed) {
    feed->endpoint = child->pid ? child->endpoint : *config->loader ? config->loader : NULL;
    feed->loader_key = *config->loader_key ? config->loader_key : NULL;
    feed->key_file = *config->key_file ? config->key_file : NULL;
    feed->timeout_ms = (uint64_t)config->data_timeout * 1000;
}

void child_close(Child *child) {
    static const char *const names[] = {"data.sock", "ctl.sock", "lock", ".lock"};
    if (child->pid > 0) {
        kill(child->pid, SIGTERM);
        waitpid(child->pid, NULL, 0);
    }
    for (size_t i = 0; *child->place && i < sizeof names / sizeof *names; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", child->place, names[i]);
        unlink(path);
    }
    if (*child->place) rmdir(child->place);
    *child = (Child){0};
}
