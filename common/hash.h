// Hashes: SHA-256 for identity, CRC32C for damage. (XXH3 is used from libxxhash directly.)
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct {
    void *context; // EVP_MD_CTX
} Sha256;

void sha256_open(Sha256 *sha);
void sha256_add(Sha256 *sha, const void *data, size_t size);
void sha256_close(Sha256 *sha, uint8_t digest[32]); // frees; digest may be NULL, and it accepts a closed one
// HMAC of RFC 2104 with SHA-256.
void hmac_sha256(const void *key, size_t key_size, const void *data, size_t size, uint8_t mac[32]);
void sha256(const void *data, size_t size, uint8_t digest[32]);

// CRC with the Castagnoli polynomial, as in iSCSI. Chained: crc32c(crc32c(0, a), b) = crc32c(0, ab).
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

void hex_encode(char *out, const void *data, size_t size); // 2*size digits and a NUL
int hex_digit(char c);                                     // 0 to 15, or -1
int hex_decode(void *out, const char *hex, size_t size);   // -1 when not exactly 2*size hex digits
