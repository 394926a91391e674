// CURVE keys: they decide which trainers may connect to a loader over tcp. A key is 40 printable characters (Z85).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_BYTES = 32, KEY_TEXT = 41, ZAP_ADDRESS_MAX = 64 };

typedef struct {
    char public_key[KEY_TEXT], secret_key[KEY_TEXT];
} KeyPair;

// A key file has the public key in its first line and the secret key in its second. Only its owner may read it.
int keys_make(KeyPair *pair, const char *path);     // 73 when the file exists
int keys_read(KeyPair *pair, const char *path);     // 77 when others may read it
int key_check(const char *text, const char *where); // 2 when it is not a key

// The public keys that may connect: one per line, anything after a blank is a comment.
typedef struct {
    uint8_t (*keys)[KEY_BYTES];
    size_t count;
} AllowList;

// 2 naming a line that is not a key; 66 when there is no key; 77 when other users may change the file.
int allow_read(AllowList *list, const char *path);
void allow_add(AllowList *list, const char *key);       // `key` in Z85
bool allow_has(const AllowList *list, const char *key); // `key` in Z85
void allow_close(AllowList *list);                      // accepts a zeroed struct

// The ZAP handler (ZeroMQ RFC 27): libzmq sends it an authentication request for each connection. Without a handler
// libzmq would accept every client key.
void *zap_open(void *context); // NULL after fail()
// Receives and answers one request. False when it refused a peer, whose address it copies to `address`. A message of an
// accepted peer has its key in Z85 as the property "User-Id".
bool zap_handle_request(void *socket, const AllowList *list, char address[ZAP_ADDRESS_MAX]);
