// Starts, watches, restarts and stops the loader of this trainer.
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

// `loader` in the folder of this executable, or `millrace-loader`, its installed name.
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
    return fail(EX_NOINPUT, "no 'loader' program in the folder of '%s'", self);
}

// In its own process group: Ctrl-C reaches only the trainer, which stops the loader when it has saved.
static int spawn(LoaderProcess *loader_process) {
    char *arguments[] = {loader_process->program,  (char[]){"serve"},
                         loader_process->dataset,  (char[]){"--endpoint"},
                         loader_process->endpoint, (char[]){"--die-with-parent"},
                         (char[]){"--quiet"},      NULL};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    int error = posix_spawn(&loader_process->pid, loader_process->program, NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    if (!error) return 0;
    loader_process->pid = 0;
    errno = error;
    return fail_errno("cannot start '%s'", loader_process->program);
}

static int ended(LoaderProcess *loader_process, int status) {
    int code = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EX_PEER;
    loader_process->pid = 0;
    return fail(code, "the loader for '%s' ended with exit code %d", loader_process->dataset, code);
}

// The loader is ready when ctl.sock exists.
static int wait_until_ready(LoaderProcess *loader_process) {
    char socket_path[96];
    snprintf(socket_path, sizeof socket_path, "%s/ctl.sock", loader_process->directory);
    while (access(socket_path, F_OK)) {
        int status;
        if (waitpid(loader_process->pid, &status, WNOHANG) == loader_process->pid) return ended(loader_process, status);
        usleep(2000);
    }
    return 0;
}

// Creates /tmp/millrace-UID/.run.tmp.PID and removes the directories of runs that were killed.
static int make_directory(LoaderProcess *loader_process) {
    char base[48];
    struct stat st;
    snprintf(base, sizeof base, "/tmp/millrace-%u", (unsigned)getuid());
    if (mkdir(base, 0700) < 0 && errno != EEXIST) return fail_errno("cannot create '%s'", base);
    if (lstat(base, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077))
        return fail(EX_PERMISSION, "'%s' is accessible to other users: remove it, or give --loader", base);
    dir_sweep(base);
    snprintf(loader_process->directory, sizeof loader_process->directory, "%.*s/.run.tmp.%d", 47, base, (int)getpid());
    snprintf(loader_process->endpoint, sizeof loader_process->endpoint, "ipc://%s", loader_process->directory);
    return mkdir(loader_process->directory, 0700) < 0 && errno != EEXIST
               ? fail_errno("cannot create '%s'", loader_process->directory)
               : 0;
}

static bool is_dataset(const char *path) {
    char manifest[PATH_MAX_BYTES];
    snprintf(manifest, sizeof manifest, "%.*s/dataset.jsonl", PATH_MAX_BYTES - 32, path);
    return access(manifest, F_OK) == 0;
}

int loader_process_open(LoaderProcess *loader_process, const Config *config) {
    *loader_process = (LoaderProcess){.restart_step = UINT64_MAX};
    if (*config->loader || !*config->dataset) return 0;
    snprintf(loader_process->dataset, sizeof loader_process->dataset, "%s", config->dataset);
    if (!is_dataset(loader_process->dataset)) // where nanoGPT keeps its datasets
        snprintf(loader_process->dataset, sizeof loader_process->dataset, "data/%.*s", PATH_MAX_BYTES - 8,
                 config->dataset);
    if (!is_dataset(loader_process->dataset))
        return fail(EX_NOINPUT,
                    "'%s' is not a dataset directory: create one with shardtool tokenize -o DIR, or give --loader",
                    config->dataset);
    if (find_loader(loader_process->program) < 0 || make_directory(loader_process) < 0) return -1;
    if (spawn(loader_process) < 0 || wait_until_ready(loader_process) < 0) {
        loader_process_close(loader_process);
        return -1;
    }
    return 0;
}

static volatile int *watched;

static void on_child_end(int number) {
    (void)number;
    if (!*watched) *watched = LOADER_PROCESS_ENDED;
}

void loader_process_watch(volatile int *flag) {
    struct sigaction action = {.sa_handler = on_child_end, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigemptyset(&action.sa_mask);
    watched = flag;
    sigaction(SIGCHLD, &action, NULL);
}

int loader_process_restart(LoaderProcess *loader_process, uint64_t step) {
    int status;
    if (!loader_process->pid || waitpid(loader_process->pid, &status, WNOHANG) != loader_process->pid) return 0;
    if (!WIFSIGNALED(status)) return ended(loader_process, status);
    loader_process->pid = 0;
    if (step == loader_process->restart_step)
        return fail(EX_PEER, "the loader was killed twice (signal %d) without a step between", WTERMSIG(status));
    loader_process->restart_step = step;
    log_warn("the loader was killed (signal %d): restarting it", WTERMSIG(status));
    return spawn(loader_process);
}

void loader_process_configure(const LoaderProcess *loader_process, const Config *config, FeedConfig *feed) {
    feed->endpoint = loader_process->pid ? loader_process->endpoint : *config->loader ? config->loader : NULL;
    feed->loader_key = *config->loader_key ? config->loader_key : NULL;
    feed->key_file = *config->key_file ? config->key_file : NULL;
    feed->timeout_ms = (uint64_t)config->data_timeout * 1000;
}

void loader_process_close(LoaderProcess *loader_process) {
    static const char *const names[] = {"data.sock", "ctl.sock", ".lock"};
    if (loader_process->pid > 0) {
        kill(loader_process->pid, SIGTERM);
        waitpid(loader_process->pid, NULL, 0);
    }
    for (size_t i = 0; *loader_process->directory && i < sizeof names / sizeof *names; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", loader_process->directory, names[i]);
        unlink(path);
    }
    if (*loader_process->directory) rmdir(loader_process->directory);
    *loader_process = (LoaderProcess){0};
}
