// CURVE keys for tcp: who may ask a loader beyond this machine. A key is 40 printable characters (Z85).
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { KEY_BYTES = 32, KEY_TEXT = 41 };

typedef struct {
    char public_key[KEY_TEXT], secret_key[KEY_TEXT];
} KeyPair;

// A key file has the public key in its first line and the secret one in its second, and only its owner may read it.
int keys_make(KeyPair *pair, const char *path);     // 73 when the file is there already
int keys_read(KeyPair *pair, const char *path);     // 77 when others may read it
int key_check(const char *text, const char *whose); // 2 when it is no key

// The public keys that may connect: one a line, what follows a blank is a note.
typedef struct {
    uint8_t (*keys)[KEY_BYTES];
    size_t count;
} AllowList;

int allow_read(AllowList *list, const char *path); // 2 with the line that is no key; 66 when it holds none
void allow_close(AllowList *list);                 // accepts a zeroed struct

// A socket at inproc://zeromq.zap.01: libzmq asks there who may connect, and without it lets everybody in.
void *zap_open(void *context);                        // NULL after fail()
void zap_answer(void *socket, const AllowList *list); // one question that waits
