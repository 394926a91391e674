// Limits the memory of answers that peers have not read: the pieces of rows and the tables in ZeroMQ's queues. A peer
// is a connection, known by its routing id, so that neither sessions nor new sockets raise its limit.
#include "common/hash.h"
#include "loader/server/server_internal.h"
#include <stddef.h>
#include <stdlib.h>

enum { TOTAL_LEAST = 64 << 20 };

static bool route_equals(const Route *a, const Route *b) {
    return a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

// The account of the peer: its own, else one whose peer has read everything. NULL if all are in use.
static UnreadAccount *find_account(Server *server, const Route *route) {
    UnreadAccount *drained = NULL;
    const unsigned first = crc32c(0, route->bytes, route->size) % UNREAD_PEERS;
    for (unsigned i = 0; i < UNREAD_PEERS; i++) {
        UnreadAccount *account = &server->unread.accounts[(first + i) % UNREAD_PEERS];
        if (route_equals(&account->route, route)) return account;
        if (!drained && !atomic_load(&account->bytes)) drained = account;
    }
    if (drained) drained->route = *route;
    return drained;
}

Unread *unread_open(Server *server, const Route *route, uint64_t limit, uint64_t payload) {
    const uint64_t total_limit = server->config->cache_bytes / 4, bytes = payload + ANSWER_BYTES;
    UnreadAccount *account = find_account(server, route);
    if (!account) return NULL;
    const uint64_t held = atomic_load(&account->bytes), total = atomic_load(&server->unread.total) + bytes;
    if (held && held + bytes > limit) return NULL;
    // A small answer is sent in any case, so that peers that do not read delay the others only a little.
    if (total > TOTAL_LEAST && total > total_limit && (held || payload > WIRE_PIECE_MAX)) return NULL;
    Unread *unread = malloc(offsetof(Unread, data) + payload);
    if (!unread) return NULL;
    atomic_fetch_add(&account->bytes, bytes), atomic_fetch_add(&server->unread.total, bytes);
    atomic_init(&unread->users, 1);
    unread->account = &account->bytes, unread->total = &server->unread.total, unread->bytes = bytes;
    return unread;
}

uint64_t unread_bytes(const Server *server, const Route *route) {
    for (const UnreadAccount *account = server->unread.accounts; account < server->unread.accounts + UNREAD_PEERS;
         account++)
        if (route_equals(&account->route, route)) return atomic_load(&account->bytes);
    return 0;
}

int unread_part(Unread *unread, size_t offset, size_t length, zmq_msg_t *part) {
    atomic_fetch_add(&unread->users, 1);
    if (zmq_msg_init_data(part, unread->data + offset, length, unread_release, unread) == 0) return 0;
    unread_release(NULL, unread);
    return -1;
}

void unread_release(void *data, void *self) {
    Unread *unread = self;
    (void)data;
    if (atomic_fetch_sub(&unread->users, 1) > 1) return;
    atomic_fetch_sub(unread->total, unread->bytes);
    atomic_fetch_sub(unread->account, unread->bytes); // last: from here on another peer may take the account
    free(unread);
}
