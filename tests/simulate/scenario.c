// The history of a seed: who takes part, what happens to them, and what must be true at the end. See scenario.h.
#include "tests/simulate/scenario.h"
#include "loader/client/control.h"
#include "loader/client/feed_internal.h"
#include "loader/server/server_internal.h"
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

World sim_world;

// The datasets are in the folder above: a and b, a short one, and one of another vocabulary.
const Spec specs[SPECS] = {
    {1, {"../a"}, NULL, {0}, {1}},
    {1, {"../b"}, NULL, {1}, {1}},
    {2, {"../a:3", "../b:1"}, "first.schedule", {0, 1}, {3, 1}},
    {3, {"../b:2", "../a:5", "../c:1"}, NULL, {1, 0, 2}, {2, 5, 1}},
    {2, {"../a:1", "../b:1"}, "second.schedule", {0, 1}, {1, 1}},
    {1, {"link"}, NULL, {0}, {1}},
};

// --- loaders

static int parse_spec(ServedSpec *spec, const Spec *from) {
    char *words[3];
    for (int i = 0; i < from->count; i++) words[i] = strdup(from->words[i]);
    return served_spec_parse(spec, from->count, words, from->schedule);
}

// As `loader serve` starts (cmd_serve.c).
static int serve(Loader *loader) {
    Endpoint *endpoint = allocate_zeroed(1, sizeof *endpoint);
    ServerConfig *config = allocate_zeroed(1, sizeof *config);
    char *text = NULL;
    *config = (ServerConfig){.cache_bytes = sim_world.cache_bytes, .threads = 2};
    if (sim_world.keeps_state) config->state_path = loader->place[0] == 'p' ? "p.state" : "q.state";
    if (parse_spec(&config->spec, &specs[loader->spec]) < 0 ||
        (config->state_path && served_spec_load(&config->spec, &text, config->state_path) < 0) ||
        endpoint_parse(endpoint, loader->endpoint, true) < 0 || !(loader->server = server_open(endpoint, config)))
        return -1;
    const int status = server_run(loader->server);
    server_close(loader->server);
    return status;
}

static void loader_main(void *self) {
    Loader *loader = self;
    const int status = serve(loader);
    loader->server = NULL;
    if (status < 0 && !loader->disturbed) sim_fail("the loader ends: %s (%d)", err_text(), err_code());
    if (status == 0 && !loader->stopping) sim_fail("the loader stops by itself");
    sim_event("loader ended", (uint64_t)err_code(), 0);
    err_clear();
    loader->disturbed = false;
}

// Starts again what has ended, as a supervisor does.
static void supervise(void *self) {
    for (;;) {
        for (Loader *loader = sim_world.loaders; loader < sim_world.loaders + sim_world.loader_count; loader++)
            if (!loader->node || (!loader->node->alive && sim_now >= loader->away_until && sim_chance(200))) {
                loader->server = NULL, loader->stopping = loader->disturbed = false, sim_world.starts++;
                loader->node = node_start(loader->place, loader_main, loader);
            }
        for (unsigned i = 0; i < sim_world.ranks; i++)
            if (!sim_world.trainers[i].node || (!sim_world.trainers[i].node->alive && !sim_world.trainers[i].ended)) {
                ranks_restart();
                break;
            }
        for (Trainer *trainer = sim_world.trainers + sim_world.ranks;
             trainer < sim_world.trainers + sim_world.trainer_count; trainer++)
            if (!trainer->node || (!trainer->node->alive && !trainer->ended && sim_chance(200)))
                trainer->node = node_start("trainer", trainer_main, trainer);
        task_sleep(sim_spread(10 * MS));
    }
    (void)self;
}

// A request for a ring that has ended is dropped. One for a ring that the loader never had is an error, and only a
// loader that has started again receives it.
typedef void SendError(Server *server, const Route *route, const WireHeader *request, WireCode code, uint32_t detail,
                       const char *format, ...) PRINTF_LIKE(6, 7);
SendError __real_server_send_error, __wrap_server_send_error;
void __wrap_server_send_error(Server *server, const Route *route, const WireHeader *request, WireCode code,
                              uint32_t detail, const char *format, ...) {
    char text[sizeof((WireError *)0)->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (code == WIRE_SLOT && sim_world.starts == sim_world.loader_count)
        sim_fail("a request for a ring that has ended is an error");
    __real_server_send_error(server, route, request, code, detail, "%s", text);
}

// --- the operator

static Outcome ask(const Loader *loader, const WireControl *control, const Buffer *words) {
    const uint64_t began_ns = sim_now;
    Query query;
    Buffer sentence = {0};
    WireMessage reply;
    int status = query_open(&query, loader->endpoint, NULL, NULL);
    if (status == 0) status = control_ask(&query, control, words, &reply, &sentence);
    if (status < 0 && err_code() != EX_PEER) sim_fail("the operator's request fails: %s", err_text());
    if (status < 0 && sim_now - began_ns >= CONTROL_WAIT_MS * MS) sim_fail("a loader that has ended is not noticed");
    err_clear();
    query_close(&query);
    buffer_close(&sentence);
    return status < 0 ? UNKNOWN : reply.control.exit_code ? REFUSED : DONE;
}

// Of a trainer whose rows are longer than the short dataset; 0: none is connected.
static uint64_t wide_session(const Server *server) {
    for (unsigned i = 0; server && i < SESSIONS_MAX; i++)
        if (server->sessions[i].sequence_tokens == WIDE_TOKENS) return server->sessions[i].id;
    return 0;
}

static void swap(const Loader *loader) {
    static const Spec wrong[] = {
        {1, {"../v"}, NULL, {0}, {0}}, {1, {"../none"}, NULL, {0}, {0}}, {2, {"../a:1", "../v:1"}, NULL, {0}, {0}}};
    const bool is_wrong = sim_chance(150);
    const bool brief = sim_world.wide && sim_chance(400); // a source is too short for those who are connected
    const bool check = brief || sim_chance(150);
    const int any = (int)sim_below(sim_world.wide ? 3 : SPEC_LINK), number = brief ? 3 : sim_chance(400) ? 2 : any;
    const uint64_t session = wide_session(loader->server);
    const unsigned starts = sim_world.starts;
    const Spec *spec = is_wrong ? &wrong[sim_below(3)] : &specs[number];
    WireControl control = {.action = WIRE_SWAP, .words = (uint32_t)spec->count, .check = check};
    Buffer words = {0};
    Change *change = &sim_world.changes[sim_world.change_count++];
    *change = (Change){.spec = is_wrong || check ? -1 : number};
    for (int i = 0; i < spec->count; i++) buffer_add(&words, spec->words[i], strlen(spec->words[i]) + 1);
    if (spec->schedule)
        buffer_add(&words, spec->schedule, strlen(spec->schedule) + 1), control.words++, control.has_schedule = 1;
    change->outcome = ask(loader, &control, &words);
    buffer_close(&words);
    if (is_wrong && change->outcome == DONE) sim_fail("a swap to a dataset that cannot be served is done");
    if (brief && change->outcome == DONE && session && starts == sim_world.starts && loader->server &&
        session_find(loader->server, session))
        sim_fail("a swap to a source that is too short for a trainer can be made");
    sim_event("swap", (uint64_t)number, change->outcome);
}

static void reweight(const Loader *loader) {
    WireControl control = {.action = WIRE_REWEIGHT, .words = 2};
    Buffer words = {0};
    Change *change = &sim_world.changes[sim_world.change_count++];
    *change = (Change){.reweight = true, .spec = -1, .weights = {1 + (uint32_t)sim_below(5), (uint32_t)sim_below(5)}};
    if (sim_chance(350)) change->from = sim_world.highest + 65536 + sim_below(200000);
    if (sim_chance(350)) { // so near that trainers come too close while the loader opens the datasets
        change->from = sim_world.highest + 65536 + sim_below(4);
        if (sim_chance(500)) sim_disk_ns = 30 * MS;
    }
    if (sim_chance(100))
        change->from = 1 + sim_below(sim_world.highest + 65536); // too late, for a loader that knows it
    control.from_sample = change->from;
    for (int i = 0; i < 2; i++) buffer_print(&words, "%u", change->weights[i]), buffer_add(&words, "", 1);
    const uint64_t received = sim_world.received;
    change->outcome = ask(loader, &control, &words);
    buffer_close(&words);
    bool knows = sim_world.starts == sim_world.loader_count; // what trainers have received
    for (unsigned i = 0; i < sim_world.change_count; i++) knows = knows && sim_world.changes[i].reweight;
    if (change->outcome == DONE && knows && change->from && change->from < received)
        sim_fail("weights from sample %llu on, but trainers have received %llu", (unsigned long long)change->from,
                 (unsigned long long)received);
    sim_event("reweight", change->from, change->outcome);
}

static void point_link(unsigned base) {
    if (base) sim_world.link_changed = true;
    unlink("link.new");
    if (symlink(base ? "../b" : "../a", "link.new") < 0) sim_fail("no link");
    if (rename("link.new", "link") == 0) sim_world.link = base; // else the disk is full
}

// The time in which every client has learned what is served.
static uint64_t notice_ns(void) { return 2 * S + 50 * sim_network.latency_ns; }

static bool disk_is_used(void *self) { return (void)self, sim_disk_user; }
// In any of the calls that write a file, perhaps on a disk that is full by then.
static void kill_writer(void *self) {
    const bool full = sim_disk_full;
    sim_disk_full = full || sim_chance(500);
    bool used = task_wait(disk_is_used, NULL, 200 * MS);
    while (used && sim_chance(600)) {
        task_sleep(sim_spread(sim_disk_ns));
        used = task_wait(disk_is_used, NULL, MS);
    }
    sim_disk_full = full;
    if (used && sim_disk_user == sim_world.loaders[0].node) node_kill(sim_disk_user), sim_summary->kills++;
    (void)self;
}

static void operator_main(void *self) {
    const uint64_t every = *(const uint64_t *)self, end = 2 * S;
    sim_world.operates = true;
    while (sim_now < end) {
        task_sleep(sim_spread(every));
        const Loader *loader = &sim_world.loaders[0];
        sim_summary->controls++;
        if (sim_chance(100)) task_start(sim_node, kill_writer, NULL, 0);
        if (loader->spec == SPEC_LINK) {
            do { // perhaps while the loader opens it
                point_link((unsigned)sim_below(2));
                for (unsigned i = 0; i < sim_world.loader_count; i++) system_signal(sim_world.loaders[i].node, SIGHUP);
                task_sleep(sim_spread(20 * US));
            } while (sim_chance(500));
        } else if (sim_world.change_count < CHANGES_MAX && sim_chance(500)) {
            swap(loader);
        } else if (sim_world.change_count < CHANGES_MAX) {
            reweight(loader);
        }
    }
    sim_world.operates = false, sim_world.calm_ns = sim_now + notice_ns();
}

// --- what happens to them

static Loader *some_loader(void) { return &sim_world.loaders[sim_below(sim_world.loader_count)]; }
static Trainer *some_trainer(void) { return &sim_world.trainers[sim_below(sim_world.trainer_count)]; }

static void end_connection(void) { net_break(sim_random()); }
static void freeze_connection(void) {
    if (sim_world.tcp) net_freeze(sim_random(), sim_chance(100) ? 15 * S : sim_spread(500 * MS));
}
static void stall_loader(void) { node_stall(some_loader()->node, sim_spread(200 * MS)); }
static void stall_trainer(void) { node_stall(some_trainer()->node, sim_spread(200 * MS)); }
static void kill_loader(void) {
    node_kill(some_loader()->node);
    sim_summary->kills++;
}
// For longer than any queue holds what happens in that time, while all trainers compute one step, or begin to wait.
static void leave(void) {
    Loader *loader = some_loader();
    const uint64_t back_ns = sim_now + 10 * S + sim_below(50 * S);
    loader->away_until = back_ns;
    for (unsigned i = 0; i < sim_world.trainer_count; i++)
        sim_world.trainers[i].computes_until = sim_chance(700) ? back_ns + sim_spread(S) - sim_below(2 * S) : 0;
    node_kill(loader->node);
    sim_summary->kills++;
}
static void kill_trainer(void) {
    node_kill(some_trainer()->node);
    sim_summary->kills++;
}
static void stop_loader(void) {
    Loader *loader = some_loader();
    if (loader->server) loader->stopping = true, system_signal(loader->node, SIGTERM);
}
static void reload(void) { system_signal(some_loader()->node, SIGHUP); }
static void fill_disk(void) { sim_disk_full = !sim_disk_full; }
static void slow_disk(void) { sim_disk_ns = sim_chance(500) ? 20 * US : 30 * MS; }
static void slow_reads(void) { sim_decode_ns = sim_chance(500) ? 100 * US : 50 * MS; }
static void failing_disk(void) {
    sim_disk_errors = sim_disk_errors ? 0 : 20;
    sim_world.errors_allowed = true;
}
static void remove_socket(void) {
    Loader *loader = some_loader();
    if (sim_world.tcp || !loader->server || sim_chance(800)) return;
    loader->disturbed = true;
    unlink(sim_chance(500) ? loader->server->endpoint->ctl : loader->server->endpoint->zmq_address + strlen("ipc://"));
}
static void damage_messages(void) { sim_network.damaged = sim_network.damaged ? 0 : 50; }
static void lose_messages(void) { sim_network.lossy = sim_network.lossy ? 0 : 20; }

typedef void Fault(void);
static Fault *const faults[] = {end_connection, freeze_connection, stall_loader,    stall_trainer,
                                kill_loader,    kill_trainer,      stop_loader,     reload,
                                fill_disk,      slow_disk,         slow_reads,      failing_disk,
                                remove_socket,  lose_messages,     damage_messages, leave};
enum { FAULTS = sizeof faults / sizeof *faults };

static void heal(void) {
    sim_disk_full = false, sim_disk_ns = 20 * US, sim_decode_ns = 100 * US, sim_disk_errors = 0;
    sim_network.lossy = sim_network.damaged = 0;
    sim_world.healed = true, sim_world.calm_ns = sim_now + notice_ns();
    sim_event("heal", 0, 0);
}

// --- the end

static bool all_ended(void *self) {
    (void)self;
    for (unsigned i = 0; i < sim_world.trainer_count; i++)
        if (!sim_world.trainers[i].ended || sim_world.trainers[i].node->alive) return false;
    return true;
}

static bool node_ended(void *self) { return !((Node *)self)->alive; }
// A slow disk may hold one longer than the trainers run.
static bool reloads_have_ended(void *self) {
    for (unsigned i = 0; i < sim_world.loader_count; i++)
        if (sim_world.loaders[i].server && sim_world.loaders[i].server->reload.running) return false;
    return (void)self, true;
}
static bool operator_has_ended(void *self) { return (void)self, !sim_world.operates; }

// A dataset that a change has made must be served: the last one that was reported as done, or a later one of which
// nothing was reported.
static void check_served(const LawDataset *served, int spec) {
    bool may_be = sim_world.loaders[0].spec == spec;
    for (unsigned i = 0; i < sim_world.change_count; i++) {
        const Change *change = &sim_world.changes[i];
        if (change->reweight || change->spec < 0 || change->outcome == REFUSED) continue;
        may_be = (may_be && (change->outcome != DONE || !sim_world.keeps_state)) || change->spec == spec;
    }
    if (spec == SPEC_LINK) may_be = served->sources[0] == &sim_world.bases[sim_world.link];
    if (!may_be) sim_fail("what was reported as done is not served at the end");
    for (unsigned i = 0; i < sim_world.change_count; i++) {
        const Change *change = &sim_world.changes[i];
        bool found = !change->reweight || change->outcome != DONE || !change->from;
        for (unsigned k = 1; k < served->entry_count; k++) found = found || served->entries[k].from == change->from;
        if (!found && sim_world.change_count == 1)
            sim_fail("weights that were reported as done do not hold at the end");
    }
}

static void audit_main(void *self) {
    FeedConfig config = sim_world.trainers[0].config;
    LawDataset served;
    config.endpoint = sim_world.loaders[0].endpoint;
    Feed *feed = feed_open(&config);
    if (!feed) sim_fail("no loader at the end: %s", err_text());
    check_served(&served, describe_dataset(feed, &served));
    feed_close(feed);
    *(bool *)self = true;
}

// Nothing is left behind where everybody has gone.
static void check_rest(const Loader *loader) {
    const Server *server = loader->server;
    if (!server) sim_fail("a loader does not run at the end");
    if (loader->disturbed) sim_fail("a loader stays where its sockets have been removed");
    if (server->jobs) sim_fail("a request is left");
    if (server->attachment_count) sim_fail("%u rings are left", server->attachment_count);
    if (server->unread.total) sim_fail("%llu bytes are counted as unread", (unsigned long long)server->unread.total);
    for (unsigned i = 0; i < UNREAD_PEERS; i++)
        if (server->unread.accounts[i].bytes) sim_fail("bytes are counted as unread by a peer");
    if (server->previous || server->closing) sim_fail("a replaced dataset stays open");
    if (server->reload.running) sim_fail("a reload does not end");
}

static void end_history(void) {
    bool audited = false;
    task_wait(operator_has_ended, NULL, UINT64_MAX); // the last change may be the one whose NOTICE is lost
    heal();
    if (!task_wait(all_ended, NULL, 400 * S)) sim_fail("no progress for 400 s after the last fault");
    task_wait(reloads_have_ended, NULL, 10 * S);
    node_start("audit", audit_main, &audited);
    task_sleep(80 * S); // a replaced dataset stays for 60 s
    if (!audited) sim_fail("the audit does not end");
    for (unsigned i = 0; i < sim_world.loader_count; i++) check_rest(&sim_world.loaders[i]);
    for (unsigned i = 0; i < sim_world.loader_count; i++) {
        Loader *loader = &sim_world.loaders[i];
        loader->stopping = true;
        system_signal(loader->node, SIGTERM);
        if (!task_wait(node_ended, loader->node, 10 * S)) sim_fail("the loader does not stop");
        loader->stopping = false;
    }
    sim_event("end", 0, 0);
    _exit(0);
}

static void fate_main(void *self) {
    const uint64_t end = S / 2 + sim_below(3 * S / 2), every = MS * (5 + sim_below(200));
    const uint64_t chosen = sim_chance(100) ? 0 : sim_random(); // which faults there are in this history
    while (sim_now < end) {
        task_sleep(sim_spread(every));
        const unsigned fault = (unsigned)sim_below(FAULTS);
        if (!(chosen >> fault & 1)) continue;
        sim_event("fault", fault, 0);
        sim_summary->faults++;
        faults[fault]();
    }
    (void)self;
    end_history();
}

// --- the beginning

static void set_loaders(void) {
    sim_world.tcp = sim_chance(350);
    sim_world.loader_count = sim_chance(200) ? 2 : 1;
    sim_world.keeps_state = sim_chance(600);
    sim_world.wide = sim_chance(80);
    sim_world.cache_bytes = sim_chance(100) ? 16384 : 131072ull << sim_below(5);
    const int spec = (int)sim_below(SPECS);
    sim_world.differ = sim_world.loader_count > 1 && sim_chance(300);
    for (unsigned i = 0; i < sim_world.loader_count; i++) {
        Loader *loader = &sim_world.loaders[i];
        loader->place[0] = "pq"[i], loader -> spec = i && sim_world.differ ? (spec + 1) % SPEC_LINK : spec;
        if (sim_world.wide && loader->spec == 3) loader->spec = 0; // its rows would not fit in the short dataset
        snprintf(loader->endpoint, sizeof loader->endpoint, sim_world.tcp ? "tcp://127.0.0.1:70%02u" : "ipc://%.*s",
                 sim_world.tcp ? i + 1 : 1, loader->place);
    }
    snprintf(sim_world.endpoints, sizeof sim_world.endpoints, "%s%s%s", sim_world.loaders[0].endpoint,
             sim_world.loader_count > 1 ? "," : "", sim_world.loaders[1].endpoint);
}

static void set_trainer(Trainer *trainer) {
    static const uint64_t places[] = {0, 0, 0, 300, 65500, 131000, 1ull << 40};
    static const uint8_t endless[] = {SAMPLING_EPOCH, SAMPLING_EPOCH, SAMPLING_SHIFTED, SAMPLING_DOCUMENTS,
                                      SAMPLING_CROP};
    trainer->rows = 1 + (uint32_t)sim_below(sim_world.wide ? 100 : 8);
    trainer->mode = endless[sim_below(sizeof endless)];
    trainer->seed = sim_below(3), trainer->next = places[sim_below(7)];
    trainer->stream = sim_chance(400), trainer->skip = sim_chance(300) ? trainer->rows * sim_below(4) : 0;
    trainer->left = 10 + (unsigned)sim_below(10);
    trainer->work_ns = sim_world.wide ? 100 * MS : sim_chance(500) ? 100 * MS : sim_chance(850) ? 30 * MS : 4 * MS;
    trainer->config = (FeedConfig){.endpoint = sim_world.endpoints,
                                   .vocab_size = 50304,
                                   .sequence_tokens = sim_world.wide ? WIDE_TOKENS : 4 + (uint32_t)sim_below(60),
                                   .max_rows = trainer->rows,
                                   .window = (uint32_t)sim_below(7),
                                   .timeout_ms = 200000,
                                   .inline_only = sim_chance(300)};
}

void history_run(void) {
    static uint64_t every;
    close(creat("first.schedule", 0600)), close(creat("second.schedule", 0600));
    point_link(0);
    sim_network.latency_ns = sim_chance(700) ? 30 * US : sim_chance(700) ? MS : sim_chance(700) ? 40 * MS : 600 * MS;
    sim_network.bytes_per_ms = sim_chance(800) ? 1 << 20 : 1 << 14;
    if (sim_chance(250)) mallopt(M_PERTURB, 0xA5); // freed memory has other contents
    sim_network.damaged = sim_chance(100) ? 100 : 0;
    set_loaders();
    sim_world.trainer_count = 1 + (unsigned)sim_below(TRAINERS_MAX);
    if (sim_chance(250)) sim_world.ranks = 2 + (unsigned)sim_below(2);
    if (sim_world.ranks > sim_world.trainer_count) sim_world.trainer_count = sim_world.ranks;
    for (unsigned i = 0; i < sim_world.trainer_count; i++) {
        Trainer *trainer = &sim_world.trainers[i];
        set_trainer(trainer);
        trainer->number = (int)i, trainer->first = trainer->next;
        if (i >= sim_world.ranks) continue;
        const Trainer *rank_0 = sim_world.trainers;
        trainer->stream = true, trainer->rows = trainer->config.max_rows = rank_0->rows;
        trainer->seed = rank_0->seed, trainer->mode = rank_0->mode;
        trainer->config.sequence_tokens = rank_0->config.sequence_tokens;
    }
    every = sim_chance(300) ? 8 * MS : MS * (50 + sim_below(600));
    const bool one = sim_world.loader_count == 1 && !sim_world.tcp, link = sim_world.loaders[0].spec == SPEC_LINK;
    node_start("supervisor", supervise, NULL);
    node_start("fate", fate_main, NULL);
    if (((one && !link) || (link && !sim_world.differ)) && sim_chance(600))
        node_start("operator", operator_main, &every);
    if (sim_chance(50)) node_start("deaf peer", deaf_peer_main, &sim_world.loaders[0]);
    sim_run();
    sim_fail("everybody waits for ever");
}
