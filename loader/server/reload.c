// Changes the server's datasets: on SIGHUP, and for CONTROL from `loader swap`. A thread opens
// the datasets while the loop serves the current ones. A dataset that trainers cannot use is refused with a reason.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "dataset/split.h"
#include "loader/server/server_internal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// --- keys

int server_read_keys(Server *server, AllowList *allow) {
    const ServerConfig *config = server->config;
    if (allow_read(allow, config->allow_path) < 0) return -1;
    allow_add(allow, config->keys->public_key); // for CONTROL
    return 0;
}

// Keys that are no longer on the list are refused from now on, also on connections that exist.
static void reload_keys(Server *server) {
    AllowList allow;
    if (!server->config->keys) return;
    if (server_read_keys(server, &allow) < 0) {
        log_warn("the allow-list stays as it was: %s", err_text());
        err_clear();
        return;
    }
    allow_close(&server->allow);
    server->allow = allow;
    log_line("keys allowed: %zu", allow.count - 1); // and the loader's own
}

// --- checks

// The split of `part` must have a sample for every connected trainer for which the present dataset has one.
static int check_length(const Server *server, const Dataset *part, unsigned split) {
    const uint64_t tokens = part->tokens[split], current = served_shortest(server->current, split)->tokens[split];
    for (const Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++)
        if (session_is_live(session) && tokens <= session->sequence_tokens && current > session->sequence_tokens)
            return fail(EX_DATA, "the %s split of '%s' has %" PRIu64 " tokens, a connected trainer needs %u",
                        split_names[split], part->name, tokens, session->sequence_tokens + 1);
    return 0;
}

static int check_trainers(const Server *server, const Served *fresh) {
    const Dataset *current = &server->current->dataset, *other = &fresh->dataset;
    if (memcmp(other->vocab_fp, current->vocab_fp, 32) || other->vocab_size != current->vocab_size)
        return fail(EX_PROTOCOL, "the new dataset has another vocabulary");
    for (unsigned split = 0; split < SPLIT_COUNT; split++)
        if (check_length(server, served_shortest(fresh, split), split) < 0) return -1;
    return 0;
}

// Samples that trainers may have requested must stay as they were.
static int check_weights_from(const Server *server, uint64_t from) {
    uint64_t first = server->current->highest + MIXTURE_SUM;
    if (from >= first) return 0;
    return fail(EX_USAGE, "the weights from sample %" PRIu64 " on come too late, the first possible sample is %" PRIu64,
                from, first);
}

static int check_fresh(const Server *server, const Served *fresh) {
    uint64_t same = served_same_samples(fresh, server->current->dataset.fingerprint);
    if (check_trainers(server, fresh) < 0) return -1;
    if (!same && server->reload.request.control.action == WIRE_REWEIGHT)
        return fail(EX_DATA, "the datasets have been changed since they were opened: serve them first (SIGHUP)");
    return same ? check_weights_from(server, same) : 0; // not 0: a mixture of the same schedule
}

// --- the change

// `fresh` continues with the samples of `before`, and alone has their counters: a sum over both counts each token once.
static void keep_counters(Served *fresh, Served *before) {
    fresh->highest = before->highest;
    memcpy(fresh->source_tokens, before->source_tokens, sizeof fresh->source_tokens);
    memset(before->source_tokens, 0, sizeof before->source_tokens);
}

// `text` receives the result. The same dataset is opened again as well: a damaged shard may have been replaced.
static void replace_dataset(Server *server, Served *fresh, Buffer *text) {
    const Dataset *dataset = &fresh->dataset;
    Served *before = server->current;
    for (unsigned split = 0; split < SPLIT_COUNT; split++)
        frame_cache_take_over(&fresh->streams[split], &before->streams[split]);
    server->current = fresh;
    if (!memcmp(dataset->fingerprint, before->dataset.fingerprint, 32)) {
        buffer_print(text, "the dataset is the same as before: its files have been opened again");
        memcpy(fresh->source_batches, before->source_batches, sizeof fresh->source_batches);
        keep_counters(fresh, before);
        served_retire(&server->closing, before);
        return;
    }
    served_retire(&server->closing, server->previous);
    server->previous = before;
    if (served_same_samples(fresh, before->dataset.fingerprint)) keep_counters(fresh, before);
    char fp[17];
    hex_encode(fp, dataset->fingerprint, 8);
    buffer_print(text, "now serving '%s', %" PRIu64 " train tokens, fingerprint %s", dataset->name,
                 dataset->tokens[SPLIT_TRAIN], fp);
    const WireControl *control = &server->reload.request.control;
    if (control->action == WIRE_REWEIGHT)
        buffer_print(text, ", with the new weights from sample %" PRIu64 " on", control->from_sample);
    else if (control->action == WIRE_SWAP && server->spec.schedule && !control->has_schedule)
        buffer_print(text, ", without a schedule: '%s' was that of the datasets before", server->spec.schedule);
    served_add_warnings(fresh, text);
    server_notify_all(server, WIRE_DATASET, "the loader serves another dataset now");
}

static void reply(Server *server, const Route *route, const WireMessage *request, int exit_code, const char *text) {
    WireMessage message = server_reply(&request->header, WIRE_CONTROL);
    zmq_msg_t second;
    message.control.action = request->control.action, message.control.exit_code = (uint32_t)exit_code;
    if (zmq_msg_init_size(&second, strlen(text)) < 0) die(EX_MEMORY, "no memory");
    memcpy(zmq_msg_data(&second), text, strlen(text));
    server_send_parts(server, route, &message, &second);
}

// --- the thread

// Points words[] at the texts. -1 when the bytes are not `count` of them.
static int split_words(char *text, size_t size, uint32_t count, char **words) {
    uint32_t found = 0;
    for (char *at = text; at < text + size; at += strlen(at) + 1) {
        if (found == count || !memchr(at, 0, (size_t)(text + size - at))) return -1;
        words[found++] = at;
    }
    return found == count ? 0 : -1;
}

static int parse_swap(Reload *reload) {
    const WireControl *control = &reload->request.control;
    char *words[WIRE_WORDS_MAX];
    int count = (int)control->words - (control->has_schedule ? 1 : 0);
    split_words(reload->words, reload->words_bytes, control->words, words);
    return served_spec_parse(&reload->spec, count, words, control->has_schedule ? words[count] : NULL);
}

// Adds to the error that two sets of datasets are open at this time.
static int fail_opening(const Served *current) {
    if (err_code() != EX_MEMORY) return -1;
    const uint64_t shards = current->streams[SPLIT_TRAIN].count + current->streams[SPLIT_VAL].count;
    return fail_in("while the %" PRIu64 " shards that are served stay mapped", shards);
}

static int open_fresh(Reload *reload) {
    const WireControl *control = &reload->request.control;
    if (control->action == WIRE_SWAP && parse_swap(reload) < 0) return -1;
    if (!(reload->fresh = served_open(&reload->spec))) return fail_opening(reload->current);
    for (unsigned split = 0; split < SPLIT_COUNT; split++)
        shard_stream_match(&reload->fresh->streams[split], &reload->current->streams[split]);
    if (control->action != WIRE_REWEIGHT) return 0;
    reload->appended = served_reweight(reload->fresh, control->from_sample, reload->weights, reload->spec.schedule,
                                       &reload->schedule_bytes) == 0;
    return reload->appended ? 0 : -1;
}

static void *run_reload(void *self) {
    Reload *reload = self;
    if (open_fresh(reload) < 0) err_take(&reload->error);
    uint64_t one = 1;
    if (write(reload->done, &one, sizeof one) < 0) die(EX_BUG, "cannot write to an eventfd: %s", strerror(errno));
    return NULL;
}

// Opens reload->spec.
static int start(Server *server) {
    Reload *reload = &server->reload;
    reload->current = server->current;
    reload->fresh = NULL, reload->appended = false, reload->error.code = 0;
    reload->running = pthread_create(&reload->thread, NULL, run_reload, reload) == 0;
    return reload->running ? 0 : fail(EX_LIMIT, "cannot start a thread");
}

// The opened datasets fit and, after a swap, will be served after a restart too.
static int accept_fresh(const Server *server) {
    const Reload *reload = &server->reload;
    const WireControl *control = &reload->request.control;
    if (check_fresh(server, reload->fresh) < 0) return -1;
    if (control->action != WIRE_SWAP || control->check || !server->config->state_path) return 0;
    return served_spec_save(&reload->spec, server->config->state_path);
}

static int finish(Server *server, Buffer *text) {
    Reload *reload = &server->reload;
    const Dataset *dataset = reload->fresh ? &reload->fresh->dataset : NULL;
    if (reload->error.code) {
        err_give(&reload->error);
    } else if (accept_fresh(server) == 0) {
        if (!reload->request.control.check) {
            replace_dataset(server, reload->fresh, text);
            return 0;
        }
        buffer_print(text, "'%s' can be served, %" PRIu64 " train tokens", dataset->name, dataset->tokens[SPLIT_TRAIN]);
        served_add_warnings(reload->fresh, text);
    }
    served_close(reload->fresh);
    if (reload->appended && truncate(reload->spec.schedule, (off_t)reload->schedule_bytes) < 0)
        log_warn("'%s': remove its last line: %s", reload->spec.schedule, strerror(errno));
    return text->size ? 0 : -1;
}

void server_reload_finish(Server *server) {
    Reload *reload = &server->reload;
    Buffer text = {0};
    uint64_t count;
    if (read(reload->done, &count, sizeof count) < 0) return;
    pthread_join(reload->thread, NULL);
    reload->running = false;
    bool done = finish(server, &text) == 0, controlled = reload->request.header.type;
    if (done && reload->words && !reload->request.control.check) {
        free(server->words);
        server->spec = reload->spec, server->words = reload->words;
    } else {
        free(reload->words);
    }
    reload->words = NULL;
    buffer_add(&text, "", 1);
    if (done)
        log_line("%s", (char *)text.data);
    else
        log_warn("the dataset stays as it was: %s", err_text());
    if (controlled) reply(server, &reload->route, &reload->request, err_code(), done ? (char *)text.data : err_text());
    buffer_close(&text);
    err_clear();
    if (reload->again) server_reload(server);
}

// --- SIGHUP

void server_reload(Server *server) {
    Reload *reload = &server->reload;
    reload_keys(server);
    reload->again = reload->running;
    if (reload->running) return;
    reload->spec = server->spec;
    memset(&reload->request, 0, sizeof reload->request);
    if (start(server) == 0) return;
    log_warn("the dataset stays as it was: %s", err_text());
    err_clear();
}

// --- CONTROL

static bool may_control(const Server *server, const char *key) {
    if (key) return !strcmp(key, server->config->keys->public_key);
    return server->listener >= 0; // ipc: the directory admits only the loader's own user
}

// `from_sample` 0: the loader chooses a sample soon after the last one that trainers have requested.
static int begin_reweight(const Server *server, Reload *reload, char **words) {
    WireControl *control = &reload->request.control;
    uint64_t highest = server->current->highest;
    reload->spec = server->spec;
    if (server->spec.count < 2) return fail(EX_USAGE, "a single dataset has no weights: see swap");
    if (!server->spec.schedule)
        return fail(EX_USAGE,
                    "this mixture has no schedule: serve or swap it with --schedule FILE, which keeps the weights");
    if (!control->from_sample && !highest)
        return fail(EX_USAGE, "no trainer has requested samples since the loader started: give --from SAMPLE");
    if (!control->from_sample) {
        const Mixture *mixture = &server->current->mixture;
        uint64_t last = mixture->entries[mixture->entry_count - 1].from, soon = highest + 2 * MIXTURE_SUM;
        control->from_sample = soon > last ? soon : last + 1; // weights that do not hold yet are overtaken
    }
    if (control->words != server->spec.count)
        return fail(EX_USAGE, "%u weights for %u datasets", control->words, server->spec.count);
    for (unsigned i = 0; i < server->spec.count; i++) {
        if (weight_parse(words[i], &reload->weights[i]) < 0) return -1;
        if (reload->weights[i] && check_length(server, &server->current->parts[i], SPLIT_TRAIN) < 0) return -1;
    }
    return check_weights_from(server, control->from_sample);
}

static int begin_control(Server *server, const WireMessage *request, Bytes text) {
    Reload *reload = &server->reload;
    char *words[WIRE_WORDS_MAX];
    reload->request = *request;
    reload->words = allocate_zeroed(text.size + 1, 1);
    if (text.size) memcpy(reload->words, text.data, text.size);
    if (split_words(reload->words, text.size, request->control.words, words) < 0 ||
        request->control.words <= request->control.has_schedule)
        return fail(EX_PROTOCOL, "the second part of the request does not have %u texts", request->control.words);
    reload->words_bytes = text.size;
    if (request->control.action == WIRE_SWAP) return start(server);
    if (begin_reweight(server, reload, words) < 0) return -1;
    free(reload->words);
    reload->words = NULL;
    return start(server);
}

void server_control(Server *server, const Route *route, const char *key, const WireMessage *request, Bytes text) {
    Reload *reload = &server->reload;
    int status;
    if (!may_control(server, key)) {
        status = fail(EX_PERMISSION, key ? "only the loader's own key may do this: give --key with its key file"
                                         : "a loader on tcp without keys takes no such request: see --key in serve");
    } else if (reload->running) {
        status = fail(EX_CREATE, "the loader is opening a dataset already: try again");
    } else {
        reload->route = *route;
        status = begin_control(server, request, text);
        if (status < 0) free(reload->words), reload->words = NULL;
    }
    if (status == 0) return;
    reply(server, route, request, err_code(), err_text());
    err_clear();
}
