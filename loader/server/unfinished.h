// Limits the memory of messages that do not end. libzmq delivers a message when it is whole, and limits the bytes of a
// part, but not the number of parts: one of a byte costs 64. So this module defines recv() for the whole program, with
// libzmq, and counts what arrives on a connection between two messages. A connection with more than
// UNFINISHED_MAX_BYTES is closed, and, while all together have more than UNFINISHED_TOTAL_BYTES, one with more than a
// trainer has in requests. All calls are thread-safe.
#pragma once

#include <stdint.h>

enum { UNFINISHED_MAX_BYTES = 2 << 20, UNFINISHED_TOTAL_BYTES = 16 << 20 };

void unfinished_begin(int fd);     // a connection was accepted
void unfinished_delivered(int fd); // a whole message of it has arrived
uint64_t unfinished_closed(void);  // connections
