// Starts, watches, restarts and stops the loader of this trainer.
#include "trainer/setup/loader_process.h"
#include "common/err.h"
#include "common/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
enum {
    BRIEF_MS = 5000, // a loader that ends sooner than this is restarted with a delay
    DELAY_MIN_MS = 50,
    DELAY_MAX_MS = 1000,
    STARTS = 5, // of loaders that never serve, in STARTS_MS at least
    STARTS_MS = 5000,
    END_MS = 2000 // for the loader to end after a signal
};

extern char **environ;

// Starts the loader in its own process group, without the trainer's blocked signals: Ctrl-C reaches only the trainer,
// which stops the loader when it has saved.
static int spawn(LoaderProcess *loader_process) {
    char parent[40], cache[40];
    snprintf(parent, sizeof parent, "--die-with-parent=%d", (int)getpid());
    snprintf(cache, sizeof cache, "--cache=%llu", (unsigned long long)loader_process->cache_bytes);
    char *arguments[] = {loader_process->program,
                         (char[]){"serve"},
                         (char[]){"--endpoint"},
                         loader_process->endpoint,
                         parent,
                         cache,
                         (char[]){"--quiet"},
                         (char[]){"--"},
                         loader_process->dataset,
                         NULL};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    int error = posix_spawn(&loader_process->pid, loader_process->program, NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    loader_process->started_ns = clock_ns();
    if (!loader_process->first_ns) loader_process->first_ns = loader_process->started_ns;
    if (!error) return 0;
    loader_process->pid = 0;
    errno = error;
    return fail_errno("cannot start '%s'", loader_process->program);
}

// The directory of the loader's sockets: $TMPDIR/millrace-UID/run-XXXXXX. Its file `owner` is locked while the trainer
// runs.

static const char *const own_files[] = {"data.sock", "ctl.sock", ".lock", "owner"};

static void remove_directory(const char *directory) {
    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", directory, own_files[i]);
        unlink(path);
    }
    rmdir(directory);
}

// Locks the file `owner` of a directory; -1 with errno when another process holds it. Where the file system has no
// locks, its creator goes on without one, and others take it for locked.
static int lock_owner(const char *directory, int flags) {
    char path[128];
    snprintf(path, sizeof path, "%s/owner", directory);
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    const int error = errno;
    if (flags & O_CREAT && (error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK)) {
        log_warn("'%s': this file system (TMPDIR) has no locks: if the run is killed, the directory stays", directory);
        return fd;
    }
    close(fd);
    return errno = error, -1;
}

// Removes the directories of trainers that were killed. The lock, not a process id, shows who is alive: the directory
// is shared by containers, which have their own process ids.
static void remove_stale_directories(const char *base) {
    DIR *list = opendir(base);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char path[96];
        if (strncmp(entry->d_name, "run-", 4) || strlen(entry->d_name) != 10) continue;
        snprintf(path, sizeof path, "%s/%.10s", base, entry->d_name);
        int fd = lock_owner(path, 0);
        if (fd < 0) continue;
        remove_directory(path);
        close(fd);
    }
    if (list) closedir(list);
}

// The folder for the sockets of this user's trainers. It gets a random name when another user has taken its own.
static int make_base(char base[64]) {
    enum { LONGEST = 32 }; // the path of a socket has 107 bytes
    const char *folder = getenv("TMPDIR");
    struct stat st;
    if (!folder || *folder != '/' || strlen(folder) > LONGEST || access(folder, W_OK) < 0) folder = "/tmp";
    snprintf(base, 64, "%s/millrace-%u", folder, (unsigned)getuid());
    if (mkdir(base, 0700) < 0 && errno != EEXIST) return fail_create(base);
    if (lstat(base, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid() && !(st.st_mode & 077)) return 0;
    snprintf(base, 64, "%s/millrace-XXXXXX", folder);
    return mkdtemp(base) ? 0 : fail_create(base);
}

static int make_directory(LoaderProcess *loader_process) {
    char base[64];
    if (make_base(base) < 0) return -1;
    remove_stale_directories(base);
    do { // again when another trainer removed the directory before its owner was locked
        snprintf(loader_process->directory, sizeof loader_process->directory, "%s/run-XXXXXX", base);
        if (!mkdtemp(loader_process->directory)) return fail_create(loader_process->directory);
        loader_process->owner = lock_owner(loader_process->directory, O_CREAT);
    } while (loader_process->owner < 0 && (errno == ENOENT || errno == EWOULDBLOCK));
    if (loader_process->owner < 0) return fail_errno("cannot lock '%s/owner'", loader_process->directory);
    snprintf(loader_process->endpoint, sizeof loader_process->endpoint, "ipc://%s", loader_process->directory);
    return 0;
}

static bool is_dataset(const char *path) {
    char manifest[PATH_MAX_BYTES];
    return access(path_join(manifest, path, "dataset.jsonl"), F_OK) == 0 ||
           errno == EACCES; // which the loader then reports
}

bool loader_process_dataset(char path[PATH_MAX_BYTES], const Config *config) {
    snprintf(path, PATH_MAX_BYTES, "%s", config->dataset);
    if (is_dataset(path)) return true;
    snprintf(path, PATH_MAX_BYTES, "data/%.*s", PATH_MAX_BYTES - 8,
             config->dataset); // where nanoGPT keeps its datasets
    return is_dataset(path);
}

int loader_process_no_dataset(const char *name) {
    static const char *const folders[] = {"", "data/"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX_BYTES];
        snprintf(path, sizeof path, "%s%.*s/train.bin", folders[i], PATH_MAX_BYTES - 32, name);
        if (access(path, F_OK) == 0)
            return fail(
                EX_NOINPUT,
                "'%s%s' is a folder of nanoGPT's: millrace import-tokens --format nanogpt -o DIR %s%s, then --dataset=DIR",
                folders[i], name, folders[i], name);
    }
    return fail(EX_NOINPUT,
                "'%s' is not a dataset directory: create one with millrace tokenize -o DIR, or give --loader", name);
}

int loader_process_open(LoaderProcess *loader_process, const Config *config, uint64_t cache_bytes) {
    *loader_process = (LoaderProcess){.owner = -1, .cache_bytes = cache_bytes};
    if (*config->loader || !*config->dataset) return 0;
    if (!loader_process_dataset(loader_process->dataset, config)) return loader_process_no_dataset(config->dataset);
    if (program_find(loader_process->program, "loader") < 0 || make_directory(loader_process) < 0 ||
        spawn(loader_process) < 0) {
        loader_process_close(loader_process);
        return -1;
    }
    return 0;
}

// Logs how the process ended and decides when to start the next one: at once, or after a delay that doubles while the
// processes end within seconds. Fails when the process ended with an error of its own.
static int after_end(LoaderProcess *loader_process, int status) {
    uint64_t now = clock_ns();
    loader_process->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status))
        return fail(WEXITSTATUS(status), "the loader for '%s' ended with exit code %d", loader_process->dataset,
                    WEXITSTATUS(status));
    bool brief = now - loader_process->started_ns < BRIEF_MS * MS;
    uint64_t delay_ns = loader_process->delay_ns;
    loader_process->delay_ns = !brief ? 0 : delay_ns ? 2 * delay_ns : DELAY_MIN_MS * MS;
    if (loader_process->delay_ns > DELAY_MAX_MS * MS) loader_process->delay_ns = DELAY_MAX_MS * MS;
    loader_process->restart_ns = now + (brief ? delay_ns : 0);
    if (!loader_process->served && ++loader_process->ends >= STARTS && now - loader_process->first_ns > STARTS_MS * MS)
        return fail(EX_PEER,
                    "the loader '%s' ended %d times before it served '%s': the program is damaged (install it "
                    "again), or something on this machine ends it",
                    loader_process->program, loader_process->ends, loader_process->dataset);
    if (WIFSIGNALED(status))
        log_warn("the loader was killed (signal %d): restarting it", WTERMSIG(status));
    else
        log_warn("the loader was stopped: restarting it");
    return 0;
}

// Fails with the loader's exit code when it ended with an error, such as a damaged dataset.
int loader_process_check(void *self) {
    LoaderProcess *loader_process = self;
    char socket[128];
    int status;
    if (!*loader_process->directory) return 0;
    snprintf(socket, sizeof socket, "%s/data.sock", loader_process->directory);
    loader_process->served = loader_process->served || access(socket, F_OK) == 0;
    if (loader_process->pid && waitpid(loader_process->pid, &status, WNOHANG) == loader_process->pid &&
        after_end(loader_process, status) < 0)
        return -1;
    return loader_process->pid || clock_ns() < loader_process->restart_ns ? 0 : spawn(loader_process);
}

// The last component of the run's folder.
static const char *run_name(const char *out_dir) {
    const char *name = out_dir;
    for (const char *at = out_dir; *at; at++)
        if (at[0] == '/' && at[1] && at[1] != '/') name = at + 1;
    return name;
}

void loader_process_configure(LoaderProcess *loader_process, const Config *config, FeedConfig *feed) {
    feed->endpoint = *loader_process->endpoint ? loader_process->endpoint : *config->loader ? config->loader : NULL;
    feed->loader_key = *config->loader_key ? config->loader_key : NULL;
    feed->key_file = *config->key_file ? config->key_file : NULL;
    feed->name = run_name(config->out_dir);
    feed->timeout_ms = (uint64_t)config->data_timeout * 1000;
    feed->while_waiting = loader_process_check, feed->while_waiting_self = loader_process;
}

// Whether the process ended within the time.
static bool ends_within(pid_t pid, uint64_t ms) {
    for (uint64_t end_ns = clock_ns() + ms * MS; waitpid(pid, NULL, WNOHANG) != pid; usleep(1000))
        if (clock_ns() >= end_ns) return false;
    return true;
}

void loader_process_close(LoaderProcess *loader_process) {
    pid_t pid = loader_process->pid;
    if (pid) {
        kill(pid, SIGTERM);
        if (!ends_within(pid, END_MS)) { // a stopped process does not act on SIGTERM
            kill(pid, SIGKILL);
            if (!ends_within(pid, END_MS)) log_warn("the loader (process %d) does not end: leaving it", (int)pid);
        }
    }
    if (*loader_process->directory) {
        remove_directory(loader_process->directory);
        if (loader_process->owner >= 0) close(loader_process->owner);
    }
    *loader_process = (LoaderProcess){0};
}
