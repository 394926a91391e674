// The ranks of a run: joining and comparing them, and sharing processors and the loader.
#include "trainer/ranks/ranks.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/cpu.h"
#include "common/machine/stop.h"
#include "trainer/setup/backend_for.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VERSION_BYTES = 64,
    SENTENCE_BYTES = 1024,
    TEXT_MAX = 1 << 20,
    TIMEOUT_MORE_S = 10 // a rank without data reports it before the others report a lost rank
};

// ---- joining

static int compare_versions(Collective *ranks) {
    char(*versions)[VERSION_BYTES] = allocate_zeroed(ranks->world, VERSION_BYTES);
    snprintf(versions[ranks->rank], VERSION_BYTES, "millrace %s", version);
    int status = collective_all_gather(ranks, versions, ranks->world * VERSION_BYTES, VERSION_BYTES);
    for (unsigned rank = 0; status == 0 && rank < ranks->world; rank++)
        if (strncmp(versions[rank], versions[0], VERSION_BYTES))
            status = fail(EX_USAGE, "rank %u runs %.63s, rank 0 runs %.63s", rank, versions[rank], versions[0]);
    free(versions);
    return status;
}

int ranks_open(Collective *ranks, const Config *config, LoaderProcess *loader_process, bool print) {
    static char name[32];
    const CollectiveSettings settings = {((uint64_t)config->data_timeout + TIMEOUT_MORE_S) * 1000, loader_process_check,
                                         loader_process, &stop_requested};
    if (collective_open(ranks, &settings) < 0) return -1;
    if (ranks->world > 1) {
        snprintf(name, sizeof name, "%.16s[%u]", log_program, ranks->rank);
        if (print || !ranks_first(ranks)) log_program = name;
        log_silent = !print && !ranks_first(ranks);
        if (log_silent && !freopen("/dev/null", "w", stdout)) return fail_errno("cannot open /dev/null");
    }
    return compare_versions(ranks);
}

int ranks_share_processors(Collective *ranks, Config *config) {
    typedef struct {
        unsigned machine; // its lowest rank
        cpu_set_t processors;
    } RankProcessors;
    if (ranks->world == 1) return 0;
    RankProcessors *all = allocate_zeroed(ranks->world, sizeof *all), *own = &all[ranks->rank];
    own->machine = ranks->local_first;
    sched_getaffinity(0, sizeof own->processors, &own->processors);
    int status = collective_all_gather(ranks, all, ranks->world * sizeof *all, sizeof *all);
    unsigned sharing = 0;
    for (unsigned rank = 0; rank < ranks->world; rank++) sharing += !memcmp(&all[rank], own, sizeof *own);
    free(all);
    if (status == 0) threads_share(config, sharing);
    return status;
}

int ranks_agree(Collective *ranks, int status) {
    if (ranks->world == 1) return status;
    if (ranks->lost) return log_silent = false, -1;
    typedef struct {
        int status, code;
        char text[SENTENCE_BYTES];
    } RankStatus;
    RankStatus *all = allocate_zeroed(ranks->world, sizeof *all), *own = &all[ranks->rank];
    Error error;
    own->status = status;
    if (status < 0) {
        err_take(&error);
        own->code = error.code;
        snprintf(own->text, sizeof own->text, "%s", error.text);
    }
    int result = collective_all_gather(ranks, all, ranks->world * sizeof *all, sizeof *all);
    for (unsigned rank = 0; result == 0 && rank < ranks->world; rank++)
        if (all[rank].code) {
            result = fail(all[rank].code, "%s", all[rank].text);
            if (rank) fail_in("rank %u", rank);
        }
    free(all);
    if (ranks->lost) log_silent = false;
    return result;
}

// ---- comparing

// The first line of `mine` that differs from `first`, which has the same keys: "key=value".
static int compare_text(const char *mine, const char *first) {
    for (; *mine && *first; mine += strcspn(mine, "\n") + 1, first += strcspn(first, "\n") + 1) {
        const size_t a = strcspn(mine, "\n"), b = strcspn(first, "\n");
        if (a != b || memcmp(mine, first, a))
            return fail(EX_USAGE, "this process has %.*s, rank 0 has %.*s", (int)a, mine, (int)b, first);
    }
    return 0;
}

// Broadcasts the text of rank 0, compares it with this rank's, and frees it. Every line ends with a line feed.
static int compare_with_first(Collective *ranks, Buffer *mine) {
    buffer_add(mine, "", 1);
    char *first = allocate_zeroed(1, TEXT_MAX);
    if (ranks_first(ranks)) memcpy(first, mine->data, mine->size);
    int status = collective_broadcast(ranks, first, TEXT_MAX);
    if (status == 0) status = ranks_agree(ranks, compare_text((const char *)mine->data, first));
    free(first);
    buffer_close(mine);
    return status;
}

// Warns when the processors of two ranks are used by other instructions: their sums have another order.
static int compare_instructions(Collective *ranks) {
    Isa *all = allocate_zeroed(ranks->world, sizeof *all);
    all[ranks->rank] = cpu_isa();
    int status = collective_all_gather(ranks, all, ranks->world * sizeof *all, sizeof *all);
    unsigned rank = 1;
    while (rank < ranks->world && all[rank] == all[0]) rank++;
    if (status == 0 && ranks_first(ranks) && rank < ranks->world)
        log_warn("rank %u computes with %s, rank 0 with %s: the bits of this run depend on which rank is where", rank,
                 cpu_isa_name(all[rank]), cpu_isa_name(all[0]));
    free(all);
    return status;
}

int ranks_compare_config(Collective *ranks, const Config *config, const Backend *backend) {
    char value[512];
    Buffer text = {0};
    if (ranks->world == 1) return 0;
    for (int key = 0; key < KEY_COUNT; key++) {
        if (config_class(key) == CLASS_PLACE) continue;
        config_value(config, key, value, sizeof value);
        buffer_print(&text, "%s=%s\n", config_key(key), value);
    }
    buffer_print(&text, "zero_stage=%lld\n", (long long)config->zero_stage);
    buffer_print(&text, "eval_only=%s\n", config->eval_only ? "True" : "False");
    buffer_print(&text, "backend '%s'\n", backend->name);
    int status = compare_with_first(ranks, &text);
    const bool portable = config->reduce_order == REDUCE_FIXED && backend->set_portable;
    return status == 0 && backend->in_host_memory && !portable ? compare_instructions(ranks) : status;
}

int ranks_compare_data(Collective *ranks, const FeedDataset *dataset) {
    char hex[65];
    Buffer text = {0};
    if (ranks->world == 1) return 0;
    hex_encode(hex, dataset->vocab_fp, 32);
    buffer_print(&text, "vocabulary %.16s\n", hex);
    hex_encode(hex, dataset->fingerprint, 32);
    buffer_print(&text, "dataset '%s' (%.16s)\n", dataset->name, hex);
    return compare_with_first(ranks, &text);
}

// ---- the loader

int ranks_share_loader(Collective *ranks, const Config *config, LoaderProcess *loader_process) {
    typedef struct {
        char endpoint[sizeof loader_process->endpoint], key[8], source[PATH_MAX_BYTES];
    } Loader;
    if (ranks->world == 1) return 0;
    Loader *loaders = allocate_zeroed(ranks->world, sizeof *loaders);
    Loader *own = &loaders[ranks->rank], *first = &loaders[ranks->local_first];
    memcpy(own->endpoint, loader_process->endpoint, sizeof own->endpoint);
    snprintf(own->key, sizeof own->key, "%s", *config->loader ? "loader" : "dataset");
    snprintf(own->source, sizeof own->source, "%s", *config->loader ? config->loader : config->dataset);
    int status = collective_all_gather(ranks, loaders, ranks->world * sizeof *loaders, sizeof *loaders);
    // Datasets that loaders already serve are compared by their fingerprints.
    const bool differs = strcmp(own->key, first->key) || (!*config->loader && strcmp(own->source, first->source));
    if (status == 0 && differs)
        status = fail(EX_USAGE, "this process has %s='%s', rank %u, whose loader it would use, has %s='%s'", own->key,
                      own->source, ranks->local_first, first->key, first->source);
    memcpy(loader_process->endpoint, first->endpoint, sizeof first->endpoint);
    free(loaders);
    return ranks_agree(ranks, status);
}

void ranks_close(Collective *ranks, bool by_signal) {
    if (ranks->world > 1 && !ranks->lost && ranks_first(ranks) && err_code()) {
        log_error("train", err_text());
        log_silent = true; // until the program ends, which would print it again
    }
    collective_close(ranks, by_signal);
}
