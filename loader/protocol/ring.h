// The ring of slots that trainer and loader share: a sealed memfd that the trainer creates and passes over ctl.sock
// (wire.h). It has no name, so nothing is left after a crash, and it does not count against /dev/shm.
#pragma once

#include "loader/protocol/wire.h"
#include <assert.h>

typedef struct {
    int fd; // the trainer's memfd; -1 for a private mapping (inline payload) and in the loader, which keeps only the
            // map
    uint8_t *base;
    uint32_t slot_bytes, slot_count; // slot_bytes is a multiple of the page size
} Ring;

// Creates the trainer's ring: a sealed memfd, or private memory when `shared` is false.
int ring_open(Ring *ring, bool shared, uint64_t slot_bytes, uint32_t slot_count);
void ring_close(Ring *ring); // accepts a zeroed struct

static inline uint8_t *ring_slot(const Ring *ring, uint32_t slot) {
    assert(ring->base && slot < ring->slot_count);
    return ring->base + (size_t)slot * ring->slot_bytes;
}

// ctl.sock. Descriptors are non-blocking and close-on-exec. These functions return -1 with errno set and do not fail().
int ctl_listen(const char *path); // removes a stale socket: the caller holds the lock of the directory
int ctl_accept(int listener);     // refuses a process of another user
int ctl_connect(const char *path);
int ctl_send_ring(int fd, const CtlAttach *attach, const Ring *ring); // trainer
int ctl_receive_ring(int fd, CtlAttach *attach, Ring *ring);          // loader; maps it. EAGAIN: nothing received yet
int ctl_send_reply(int fd, const CtlReply *reply);                    // loader
int ctl_receive_reply(int fd, CtlReply *reply);                       // trainer
