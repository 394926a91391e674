// The counters of STATS, and the Prometheus text file.
#include "common/err.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include "loader/server/unfinished.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RATE_STALE_NS = 2 * RATE_NS };

static uint64_t resident_bytes(void) {
    unsigned long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%llu %llu", &size, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool has_ring(const Server *server, uint64_t session) {
    for (unsigned i = 0; i < server->attachment_count; i++)
        if (server->attachments[i].session == session) return true;
    return false;
}

static void add_client(const Server *server, const Session *session, Status *status) {
    WireClientStats *client = &status->clients[status->totals.clients++];
    uint64_t now = clock_ns(), since_ns = now - session->rate_began_ns;
    *client = session->stats;
    client->session = session->id;
    client->age_ns = now - session->started_ns, client->silent_ns = now - session->seen_ns;
    client->sequence_tokens = session->sequence_tokens;
    client->ring = has_ring(server, session->id);
    client->unread_bytes = unread_bytes(server, &session->route);
    status->totals.sessions += client->silent_ns < STATUS_GONE_NS;
    if (since_ns >= RATE_STALE_NS || (!client->tokens_per_s && since_ns)) // no batch has ended the interval
        client->tokens_per_s = (uint64_t)((double)session->rate_tokens * 1e9 / (double)since_ns);
}

// Adds the i-th dataset of `served`, with the weights of the last samples that were requested, and the next ones.
static void add_source(const Served *served, unsigned i, bool replaced, Status *status) {
    if (status->totals.sources == STATUS_SOURCES_MAX) return;
    WireSourceStats *source = &status->sources[status->totals.sources++];
    const bool mixed = served->source_count > 1;
    const Dataset *dataset = mixed ? &served->parts[i] : &served->dataset;
    *source = (WireSourceStats){.weight = 1,
                                .batches = served->source_batches[i],
                                .tokens = served->source_tokens[i],
                                .highest = served->highest,
                                .replaced = replaced};
    if (mixed) {
        const Mixture *mixture = &served->mixture;
        const MixtureEntry *entry = mixture_entry(mixture, served->highest), *next = entry + 1;
        source->weight = entry->given[i];
        if (next < mixture->entries + mixture->entry_count)
            source->next_weight = next->given[i], source->next_from = next->from;
    }
    snprintf(source->name, sizeof source->name, "%s", dataset->name);
    wire_clean_text(source->name, sizeof source->name);
    memcpy(source->fp8, dataset->fingerprint, sizeof source->fp8);
}

static void add_sources(const Served *served, bool replaced, Status *status) {
    for (unsigned i = 0; served && i < served->source_count; i++) add_source(served, i, replaced, status);
}

void server_status(const Server *server, Status *status) {
    WireStats *totals = &status->totals;
    *totals = server->stats;
    FrameCacheStats cache = frame_cache_stats(row_reader_cache(server->reader));
    totals->frames_decoded = cache.decoded, totals->cache_hits = cache.hits, totals->cache_misses = cache.misses;
    totals->cache_bytes = cache.bytes, totals->cache_limit = cache.limit;
    totals->uptime_ns = clock_ns() - server->started_ns;
    totals->dropped += unfinished_closed();
    totals->resident_bytes = resident_bytes();
    for (const Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++)
        if (session_is_live(session)) add_client(server, session, status);
    add_sources(server->current, false, status);
    add_sources(server->previous, true, status);
}

// Whether a file is empty, or begins as these metrics do: any other one is not replaced.
static bool is_metrics_file(const char *path) {
    char start[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t got = fd < 0 ? -1 : read(fd, start, sizeof start - 1);
    if (fd >= 0) close(fd);
    return got == 0 || (got > 0 && start[0] == '#' && strstr(start, " millrace_"));
}

// There is no fsync, because the figures are of no use after a crash of the machine.
static int replace_file(const char *path, mode_t mode, Bytes text) {
    struct stat st;
    char temp[PATH_MAX_BYTES];
    snprintf(temp, sizeof temp, "%.*s.tmp", PATH_MAX_BYTES - 8, path);
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fail(EX_CREATE, "'%s' is not a regular file: the metrics file is replaced every few seconds", path);
    if (lstat(path, &st) == 0 && !is_metrics_file(path))
        return fail(EX_CREATE, "'%s' is another file, which the metrics would replace", path);
    int fd = file_open_regular(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    if (fd < 0) return -1;
    int status = fd_write(fd, text.data, text.size, temp);
    if (status == 0 && fchmod(fd, mode) < 0) status = fail_errno("cannot change the mode of '%s'", temp);
    close(fd);
    if (status == 0 && rename(temp, path) < 0) status = fail_errno("cannot rename '%s'", temp);
    return status;
}

int server_write_metrics(Server *server) {
    static Status status;
    Buffer text = {0};
    server->metrics_ns = clock_ns();
    server_status(server, &status);
    status_print(&status, STATUS_PROMETHEUS, server->endpoint, &text);
    int result = replace_file(server->config->metrics_path, server->file_mode, (Bytes){text.data, text.size});
    buffer_close(&text);
    server->metrics_written = server->metrics_written || result == 0;
    return result;
}

void server_remove_metrics(const Server *server) {
    const char *path = server->config->metrics_path;
    if (server->metrics_written && is_metrics_file(path)) unlink(path);
}
