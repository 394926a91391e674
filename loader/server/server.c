// Lifecycle and poll loop of the server: one thread, a ROUTER socket, ctl.sock, and a signalfd.
#include "common/err.h"
#include "common/log.h"
#include "common/machine/host_memory.h"
#include "common/machine/pool.h"
#include "loader/server/descriptors.h"
#include "loader/server/server_internal.h"
#include "loader/server/unfinished.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum {
    SEND_HIGH_WATER = 4096, // messages per peer: more than the pieces of WIRE_PAYLOAD_MAX bytes
    RECEIVE_HIGH_WATER = 2 * WIRE_WINDOW_MAX + 8,
    LINGER_MS = 100,         // at shutdown: for requests on their way and for the last answers
    QUIET_MS = 10,           // at shutdown: no request for this long means that none is on its way
    HANDSHAKE_MS = 10000,    // a peer that has not finished the ZeroMQ handshake by then is disconnected
    PEER_SILENCE_MS = 60000, // a heartbeat waits until a slow connection has transferred the rows before it
    METRICS_MS = 5000,       // interval of the metrics file
    WATCH_MS = 1000,         // interval of the checks for files that do not answer, and of the free memory
    PREVIOUS_MS = 60000,     // a replaced dataset is closed when no trainer has requested it for this long
};

static uint64_t random_id(void) {
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id) die(EX_LIMIT, "no random numbers: %s", strerror(errno));
    return id | 1;
}

// ZeroMQ ends the program if it cannot start its two threads.
static int check_threads(void) {
    char job;
    Pool *pool = pool_open(2, NULL, &job, 1, 1);
    if (!pool) return -1;
    pool_close(pool);
    return 0;
}

static int bind_sockets(Server *server, const Endpoint *endpoint) {
    if (endpoint->ipc) server->listener = ctl_listen(endpoint->ctl);
    if (endpoint->ipc && server->listener < 0) return fail_errno("cannot listen on '%s'", endpoint->ctl);
    if (check_threads() < 0 || endpoint_check_files() < 0) return -1;
    server->context = zmq_ctx_new();
    server->router = server->context ? zmq_socket(server->context, ZMQ_ROUTER) : NULL;
    if (!server->router) return fail(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
    endpoint_set(server->router, ZMQ_ROUTER_MANDATORY, 1); // report a full queue instead of dropping answers silently
    endpoint_set(server->router, ZMQ_ROUTER_HANDOVER, 1);
    endpoint_set(server->router, ZMQ_SNDTIMEO, 0);
    endpoint_set(server->router, ZMQ_SNDHWM, SEND_HIGH_WATER);
    endpoint_set(server->router, ZMQ_RCVHWM, RECEIVE_HIGH_WATER);
    endpoint_set(server->router, ZMQ_LINGER, LINGER_MS);
    endpoint_set(server->router, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    if (strchr(endpoint->zmq_address, '[')) endpoint_set(server->router, ZMQ_IPV6, 1);
    if (!endpoint->ipc) endpoint_keep_alive(server->router, PEER_SILENCE_MS);
    int64_t most = WIRE_PART_MAX;
    zmq_setsockopt(server->router, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (server->config->keys) {
        endpoint_set(server->router, ZMQ_CURVE_SERVER, 1);
        zmq_setsockopt(server->router, ZMQ_CURVE_SECRETKEY, server->config->keys->secret_key, KEY_TEXT);
        if (!(server->zap = zap_open(server->context))) return -1;
    }
    if (zmq_bind(server->router, endpoint->zmq_address) < 0)
        return fail(EX_CREATE, "cannot bind '%s': %s", endpoint->name, zmq_strerror(errno));
    return 0;
}

const Dataset *server_dataset(const Server *server) { return &server->current->dataset; }

Server *server_open(const Endpoint *endpoint, const ServerConfig *config) {
    Server *server = allocate_zeroed(1, sizeof *server);
    server->config = config, server->endpoint = endpoint;
    server->signals = server->listener = -1;
    server->last_job = &server->jobs;
    server->reload.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->spec = config->spec;
    server->instance = random_id();
    server->started_ns = clock_ns();
    // The mask is set before ZeroMQ starts its threads, which inherit it.
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    signal(SIGPIPE, SIG_IGN); // stderr may be a pipe whose reader has ended
    signal(SIGUSR1, SIG_IGN), signal(SIGUSR2, SIG_IGN);
    server->signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    server->file_mode = 0666 & ~umask(077);
    descriptors_prepare();
    Buffer equal = {0};
    if ((config->keys && server_read_keys(server, &server->allow) < 0) ||
        !(server->current = served_open(&config->spec)) ||
        !(server->reader = row_reader_open(config->cache_bytes, config->threads)) ||
        endpoint_lock(endpoint, &server->lock) < 0 || bind_sockets(server, endpoint) < 0 ||
        (config->metrics_path && server_write_metrics(server) < 0)) {
        server_close(server);
        return NULL;
    }
    served_add_warnings(server->current, &equal);
    if (equal.size) log_warn("%.*s", (int)equal.size - 2, (char *)equal.data + 2);
    buffer_close(&equal);
    return server;
}

static void attachment_close(Server *server, Attachment *attachment) {
    if (attachment->id) jobs_cancel(server, attachment->id);
    ring_close(&attachment->ring);
    free(attachment->slots);
    close(attachment->fd); // last: the trainer then knows that no one writes to the ring
    *attachment = server->attachments[--server->attachment_count];
}

// Closes the retired datasets that no request and no decoder uses any more.
static void close_retired(Server *server) {
    for (Served **link = &server->closing; *link;) {
        Served *served = *link;
        if (served->users || !server->reader || !row_reader_forget(server->reader, served)) {
            link = &served->next;
            continue;
        }
        *link = served->next;
        served_close(served);
    }
}

void server_close(Server *server) {
    if (!server) return;
    server_remove_metrics(server);
    while (server->attachment_count) attachment_close(server, &server->attachments[0]);
    if (server->router) zmq_close(server->router);
    if (server->zap) zmq_close(server->zap);
    if (server->context) zmq_ctx_term(server->context);
    if (server->listener >= 0) close(server->listener);
    if (server->signals >= 0) close(server->signals);
    if (server->reload.running) { // it may wait for a disk: the end of the process ends it
        pthread_detach(server->reload.thread);
        return;
    }
    close(server->reload.done);
    lock_drop(&server->lock);
    allow_close(&server->allow);
    jobs_cancel(server, 0);
    served_retire(&server->closing, server->current), served_retire(&server->closing, server->previous);
    close_retired(server);
    if (!row_reader_close(server->reader)) return; // a decoder waits for a disk
    for (Served *next; server->closing; server->closing = next) {
        next = server->closing->next;
        served_close(server->closing);
    }
    free(server->words);
    free(server);
}

// --- messages

// Handles one message, which is a routing id and one or two parts; false when none waits.
static bool receive_message(Server *server) {
    enum { PARTS = 3 };
    zmq_msg_t parts[PARTS];
    int count = 0, more = 1;
    for (; more; count++) {
        zmq_msg_t surplus, *part = count < PARTS ? &parts[count] : &surplus;
        zmq_msg_init(part);
        if (zmq_msg_recv(part, server->router, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(part);
            break;
        }
        more = zmq_msg_more(part);
        if (part == &surplus) zmq_msg_close(part);
    }
    if (!count) return false;
    const char *fd = count > 1 ? zmq_msg_gets(&parts[1], "__fd") : NULL; // as ZMQ_SRCFD
    if (fd) unfinished_delivered(atoi(fd));
    Sender peer = {.route.size = zmq_msg_size(&parts[0])};
    if (count >= 2 && count <= PARTS && !more && peer.route.size <= ROUTE_MAX &&
        zmq_msg_size(&parts[1]) <= WIRE_REQUEST_MAX && (count < PARTS || zmq_msg_size(&parts[2]) <= WIRE_REQUEST_MAX)) {
        memcpy(peer.route.bytes, zmq_msg_data(&parts[0]), peer.route.size);
        peer.key = server->zap ? zmq_msg_gets(&parts[1], "User-Id") : NULL;
        peer.address = zmq_msg_gets(&parts[1], "Peer-Address");
        Bytes second = {0};
        if (count == PARTS) second = (Bytes){zmq_msg_data(&parts[2]), zmq_msg_size(&parts[2])};
        server_handle_message(server, &peer, (Bytes){zmq_msg_data(&parts[1]), zmq_msg_size(&parts[1])}, second);
    } else {
        server->stats.dropped++;
    }
    for (int i = 0; i < count && i < PARTS; i++) zmq_msg_close(&parts[i]);
    return true;
}

// --- rings

static void attachment_accept(Server *server) {
    int fd = ctl_accept(server->listener);
    if (fd < 0) return;
    if (server->attachment_count == ATTACHMENTS_MAX) {
        close(fd);
        return;
    }
    server->attachments[server->attachment_count++] = (Attachment){.fd = fd, .ring.fd = -1};
}

// A trainer sends one message, its ring. Any other event on the connection ends it.
static void attachment_receive(Server *server, Attachment *attachment) {
    CtlAttach attach;
    Ring ring;
    if (attachment->id || ctl_receive_ring(attachment->fd, &attach, &ring) < 0) {
        if (!attachment->id && (errno == EAGAIN || errno == EINTR)) return;
        attachment_close(server, attachment);
        return;
    }
    attachment->ring = ring;
    attachment->id = (server->instance >> 32 << 32) + ++server->rings_received;
    attachment->session = attach.session;
    attachment->slots = allocate_zeroed(ring.slot_count, sizeof *attachment->slots);
    CtlReply reply = {WIRE_MAGIC, WIRE_MAJOR, 0, attachment->id, server->instance, 0};
    if (ctl_send_reply(attachment->fd, &reply) < 0) attachment_close(server, attachment);
}

// --- keys

static void authenticate(Server *server) {
    char address[ZAP_ADDRESS_MAX] = "";
    if (!zap_handle_request(server->zap, &server->allow, address)) server_refuse_peer(server, address);
}

// --- signals

// Sends the notice, then answers the requests that trainers sent before they received it.
static void shut_down(Server *server) {
    server_notify_all(server, WIRE_SHUTDOWN, "the loader is stopping");
    zmq_pollitem_t item = {.socket = server->router, .events = ZMQ_POLLIN};
    uint64_t end_ns = clock_ns() + LINGER_MS * 1000000ull;
    bool more = true;
    while (clock_ns() < end_ns && (zmq_poll(&item, 1, more ? 1 : QUIET_MS) > 0 || more)) {
        receive_message(server);
        frame_cache_collect(row_reader_cache(server->reader));
        jobs_advance(server);
        more = server->jobs;
    }
}

// False when a signal stops the loader.
static bool handle_signals(Server *server) {
    struct signalfd_siginfo signal;
    while (read(server->signals, &signal, sizeof signal) == sizeof signal) {
        if (signal.ssi_signo != SIGHUP) return false;
        server_reload(server);
    }
    return true;
}

// --- the loop

static void update_metrics(Server *server) {
    static bool warned;
    bool failed = server_write_metrics(server) < 0;
    if (failed && !warned) log_warn("no metrics: %s", err_text());
    warned = failed;
    err_clear();
}

// Cleaners of temporary folders remove sockets.
static bool is_reachable(const Endpoint *endpoint) {
    return access(endpoint->ctl, F_OK) == 0 && access(endpoint->zmq_address + strlen("ipc://"), F_OK) == 0;
}

// Does the work that is due by time, not by an event.
static void do_timed_work(Server *server) {
    uint64_t now = clock_ns();
    if (server->previous && now - server->previous->requested_ns > PREVIOUS_MS * 1000000ull) {
        served_retire(&server->closing, server->previous);
        server->previous = NULL;
    }
    if (server->closing) close_retired(server);
    if (server->config->metrics_path && now - server->metrics_ns >= METRICS_MS * 1000000ull) update_metrics(server);
    if (now - server->watched_ns >= WATCH_MS * 1000000ull) {
        server->watched_ns = now;
        frame_cache_watch(row_reader_cache(server->reader), now);
        frame_cache_adapt(row_reader_cache(server->reader), host_memory_free(NULL));
        server->unreachable = server->endpoint->ipc && !is_reachable(server->endpoint);
    }
}

int server_run(Server *server) {
    enum { ROUTER, SIGNALS, RELOAD, FRAMES, LISTENER, ZAP, FIRST };
    zmq_pollitem_t items[FIRST + ATTACHMENTS_MAX];
    FrameCache *cache = row_reader_cache(server->reader);
    for (bool more = false;;) {
        memset(items, 0, sizeof items);
        items[ROUTER].socket = server->router;
        items[SIGNALS].fd = server->signals;
        items[RELOAD].fd = server->reload.done;
        items[FRAMES].fd = frame_cache_event(cache);
        items[LISTENER].fd = server->listener;
        items[ZAP].socket = server->zap;
        if (!server->zap) items[ZAP].fd = -1;
        unsigned attached = server->attachment_count;
        for (unsigned i = 0; i < attached; i++) items[FIRST + i].fd = server->attachments[i].fd;
        for (unsigned i = 0; i < FIRST + attached; i++) items[i].events = ZMQ_POLLIN;
        do_timed_work(server);
        if (server->unreachable)
            return fail(EX_PEER, "the sockets in '%s' have been removed: trainers cannot connect",
                        server->endpoint->dir);
        int ready = zmq_poll(items, (int)(FIRST + attached), more ? 0 : WATCH_MS);
        if (ready < 0 && errno != EINTR) return fail(EX_BUG, "zmq_poll: %s", zmq_strerror(errno));
        if (items[SIGNALS].revents && !handle_signals(server)) {
            shut_down(server);
            return 0;
        }
        if (items[RELOAD].revents) server_reload_finish(server);
        // The loop runs backwards, because closing an attachment moves the last one into its place.
        for (unsigned i = attached; i--;)
            if (items[FIRST + i].revents) attachment_receive(server, &server->attachments[i]);
        if (items[LISTENER].revents) attachment_accept(server);
        if (items[ZAP].revents) authenticate(server);
        for (int i = 0; i < WIRE_WINDOW_MAX && receive_message(server); i++) {
        }
        if (items[FRAMES].revents) frame_cache_collect(cache);
        more = jobs_advance(server);
        row_reader_prefetch(server->reader);
    }
}
