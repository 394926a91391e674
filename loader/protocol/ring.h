// The ring of slots that trainer and loader share: a sealed memfd of the trainer's, passed over a SOCK_SEQPACKET
// socket. It has no name, so nothing is left after a crash, and it does not count against /dev/shm.
#pragma once

#include "loader/protocol/wire.h"

typedef struct {
    int fd; // of the owner; -1 for a private mapping (inline payload) and for the loader, whose mapping holds it
    uint8_t *base;
    uint32_t slot_bytes, slot_count; // slot_bytes is a multiple of the page
} Ring;

// The trainer's: shared and sealed, or private memory when `shared` is false.
int ring_open(Ring *ring, bool shared, uint64_t slot_bytes, uint32_t slot_count);
void ring_close(Ring *ring); // accepts a zeroed struct

static inline uint8_t *ring_slot(const Ring *ring, uint32_t slot) {
    return ring->base + (size_t)slot * ring->slot_bytes;
}

// ctl.sock. Descriptors are non-blocking and close-on-exec; -1 with errno set, no fail().
int ctl_listen(const char *path); // the caller holds the lock of the directory: a stale socket is removed
int ctl_accept(int listener);     // refuses another user's process
int ctl_connect(const char *path);
int ctl_offer(int fd, const CtlAttach *attach, const Ring *ring); // trainer: sends the descriptor
int ctl_receive(int fd, CtlAttach *attach, Ring *ring);           // loader: maps it; EAGAIN = not yet, 0 or -1
int ctl_answer(int fd, const CtlReply *reply);
int ctl_read_answer(int fd, CtlReply *reply);
