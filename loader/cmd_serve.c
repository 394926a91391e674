// loader serve: serves a dataset directory until a signal stops it.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/cgroup.h"
#include "common/machine/host_memory.h"
#include "common/machine/pool.h"
#include "loader/server/frame_cache.h"
#include "loader/server/server.h"
#include "remote/url_map.h"
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { THREADS_MAX = 8 }; // that decode: one decodes several hundred million tokens a second

static const char *address, *key_file, *allow_file, *metrics_file, *schedule_file, *state_file;
static uint64_t cache_bytes;
static bool insecure;
static RemoteOptions remote = {.retries = 8, .timeout_s = 30};
static UrlMapOptions urls = {.remote = &remote, .is_server = true};
static int64_t parent; // 0: none

static const Option options[] = {
    {OPT_STRING, "endpoint", &address, "ENDPOINT",
     "where trainers connect: ipc://DIR (default: $XDG_RUNTIME_DIR/millrace, else /tmp/millrace-UID) or "
     "tcp://HOST:PORT"},
    {OPT_STRING, "key", &key_file, "FILE",
     "the loader's key pair, needed for tcp from other machines (millrace keygen)"},
    {OPT_STRING, "allow", &allow_file, "FILE",
     "file with the public keys of the trainers that may connect, one per line"},
    {OPT_STRING, "metrics", &metrics_file, "FILE",
     "replace FILE every 5 seconds with counters as Prometheus text; it is removed at the end"},
    {OPT_SIZE, "cache", &cache_bytes, "SIZE",
     "most memory for decoded data, at least 2 MiB; 0: a quarter of the free memory at the start. Above 16 MiB it is "
     "used only while 64 MiB are free besides"},
    {OPT_STRING, "disk-cache", &urls.cache, "DIR",
     "folder for frames of datasets by URL, which stay for the next start"},
    {OPT_SIZE, "disk-cache-size", &urls.cache_bytes, "SIZE", "its size; 0: half of the free space of its disk"},
    {OPT_FLAG, "allow-http", &remote.allow_http, NULL, "read http:// URLs of other machines, unprotected"},
    {OPT_STRING, "schedule", &schedule_file, "FILE",
     "later weights of a mixture: lines 'SAMPLE WEIGHT WEIGHT ...'; SIGHUP reads it again, swap :WEIGHT... appends to it"},
    {OPT_STRING, "state", &state_file, "FILE",
     "keeps the changes of swap: at the next start, the datasets in FILE are served, not the ones of the command line"},
    {OPT_FLAG, "insecure", &insecure, NULL, "serve tcp without keys: to every process that can connect"},
    {OPT_INT, "die-with-parent", &parent, "PID", "stop when the parent, process PID, ends"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

// Memory of this machine, or of this process's control group if that is less.
static uint64_t memory_bytes(void) {
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = cgroup_limits().memory_bytes;
    return limit && limit < bytes ? limit : bytes;
}

static uint64_t default_cache(uint64_t memory) {
    const uint64_t unused = host_memory_free(NULL), bytes = (unused ? unused : memory) / 4;
    return bytes > FRAME_CACHE_LEAST ? bytes : FRAME_CACHE_LEAST;
}

static int check_cache(uint64_t memory) {
    enum { CACHE_LEAST = 2 << 20 };
    char least[16], most[16];
    if (!cache_bytes || (cache_bytes >= CACHE_LEAST && cache_bytes <= memory)) return 0;
    return fail(EX_USAGE, "--cache is %llu bytes: give 0 (the default), or %s to %s, the memory that there is",
                (unsigned long long)cache_bytes, human_bytes(least, CACHE_LEAST), human_bytes(most, (double)memory));
}

// Tells systemd about the state of the service (sd_notify(3)), if it has started this process.
static void notify_systemd(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un manager = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof manager.sun_path) return;
    memcpy(manager.sun_path, path, strlen(path));
    if (*path == '@') *manager.sun_path = 0; // an abstract name
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd >= 0 && sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&manager, size) < 0)
        log_warn("cannot notify systemd: %s", strerror(errno));
    if (fd >= 0) close(fd);
}

// Inline answers of a MB are freed and allocated all the time. These are glibc's values after a block of 32 MiB; its
// first ones return pages to the kernel and fault them in again, up to 80 for each MiB sent (bench_loader, 2026-11-23).
static void keep_freed_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

static int serve(const Endpoint *endpoint, const ServerConfig *config) {
    keep_freed_memory();
    Server *server = server_open(endpoint, config);
    if (!server) return -1;
    if (urls.cache) url_map_sweep_cache();
    const Dataset *dataset = server_dataset(server);
    char fp[17];
    hex_encode(fp, dataset->fingerprint, 8);
    log_line("ready: serving '%s', %llu train and %llu val tokens, fingerprint %s, at %s", dataset->name,
             (unsigned long long)dataset->tokens[SPLIT_TRAIN], (unsigned long long)dataset->tokens[SPLIT_VAL], fp,
             endpoint->name);
    notify_systemd("READY=1");
    int status = server_run(server);
    notify_systemd("STOPPING=1");
    url_map_stop();
    server_close(server);
    if (status == 0) log_line("stopped");
    return status;
}

static int run(int count, char **arguments) {
    if (!parent) log_add_times(); // else its lines are among the parent's
    if (parent) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) { // it ended before the call above, which then sends nothing
            log_line("the parent, process %lld, has ended", (long long)parent);
            return 0;
        }
    }
    ServerConfig config = {.allow_path = allow_file, .metrics_path = metrics_file, .state_path = state_file};
    static char *words[SOURCES_MAX], *state; // own strings of the configuration until the end of the program
    for (int i = 0; i < count && i < SOURCES_MAX; i++) words[i] = strdup(arguments[i]); // ps shows the arguments
    if (served_spec_parse(&config.spec, count, words, schedule_file) < 0 ||
        (state_file && served_spec_load(&config.spec, &state, state_file) < 0))
        return -1;
    if (state) log_line("'%s' names what is served, not the command line", state_file);
    Endpoint endpoint;
    KeyPair keys;
    if (!key_file != !allow_file) return fail(EX_USAGE, "--key and --allow must be given together");
    if (endpoint_parse(&endpoint, address, key_file || insecure) < 0) return -1;
    if (!endpoint.ipc && !key_file && !insecure)
        return fail(EX_PERMISSION,
                    "tcp needs keys: give --key and --allow, or --insecure to serve every process that can "
                    "connect");
    if (key_file && keys_read(&keys, key_file) < 0) return -1;
    if (key_file) config.keys = &keys;
    url_map_enable(&urls);
    if (urls.cache && url_map_open_cache() < 0) return -1;
    uint64_t memory = memory_bytes();
    if (check_cache(memory) < 0) return -1;
    config.cache_bytes = cache_bytes ? cache_bytes : default_cache(memory);
    unsigned cores = pool_cores();
    config.threads = cores < THREADS_MAX ? cores : THREADS_MAX;
    return serve(&endpoint, &config);
}

const Command loader_serve = {
    "serve", "DIR[:WEIGHT]...", "serve a dataset, or a mixture of several, to trainers", options, run, NULL};
