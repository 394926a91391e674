// What a static bits_step.c has in place of libcrypto, which only glibc has here: SHA-256 by FIPS 180-4.
#include "common/bytes.h"
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct evp_md_ctx_st {
    uint32_t hash[8], constants[64];
    uint8_t block[64];
    size_t size;
};

// The first 32 bits of the fraction of the square or cube root of a prime.
static uint32_t root(unsigned prime, bool cube) {
    uint64_t found = 0;
    for (int bit = 36; bit >= 0; bit--) {
        const unsigned __int128 x = found | 1ULL << bit;
        if (x * x * (cube ? x : 1) <= (unsigned __int128)prime << (cube ? 96 : 64)) found = (uint64_t)x;
    }
    return (uint32_t)found;
}

EVP_MD_CTX *EVP_MD_CTX_new(void) { return allocate_zeroed(1, sizeof(EVP_MD_CTX)); }
void EVP_MD_CTX_free(EVP_MD_CTX *sha) { free(sha); }
const EVP_MD *EVP_sha256(void) { return NULL; }

int EVP_DigestInit_ex(EVP_MD_CTX *sha, const EVP_MD *type, ENGINE *engine) {
    (void)type, (void)engine;
    unsigned count = 0;
    for (unsigned n = 2; count < 64; n++) {
        unsigned divisor = 2;
        while (n % divisor) divisor++;
        if (divisor < n) continue;
        if (count < 8) sha->hash[count] = root(n, false);
        sha->constants[count++] = root(n, true);
    }
    return 1;
}

static uint32_t turned(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

static void add_block(EVP_MD_CTX *sha) {
    uint32_t w[64], v[8];
    memcpy(v, sha->hash, sizeof v);
    for (int t = 0; t < 64; t++) {
        uint32_t big;
        memcpy(&big, sha->block + 4 * (t % 16), 4);
        w[t] = t < 16 ? __builtin_bswap32(big)
                      : w[t - 16] + (turned(w[t - 15], 7) ^ turned(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 7] +
                            (turned(w[t - 2], 17) ^ turned(w[t - 2], 19) ^ w[t - 2] >> 10);
        const uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) +
                             ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha->constants[t] + w[t];
        const uint32_t two =
            (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one, v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) sha->hash[i] += v[i];
}

int EVP_DigestUpdate(EVP_MD_CTX *sha, const void *data, size_t size) {
    for (const uint8_t *byte = data; size--; byte++) {
        sha->block[sha->size++ % 64] = *byte;
        if (sha->size % 64 == 0) add_block(sha);
    }
    return 1;
}

int EVP_DigestFinal_ex(EVP_MD_CTX *sha, unsigned char *digest, unsigned *length) {
    (void)length;
    const uint64_t bits = __builtin_bswap64(8 * sha->size);
    EVP_DigestUpdate(sha, "\x80", 1);
    while (sha->size % 64 != 56) EVP_DigestUpdate(sha, "", 1);
    EVP_DigestUpdate(sha, &bits, sizeof bits);
    for (int i = 0; i < 8; i++) {
        const uint32_t big = __builtin_bswap32(sha->hash[i]);
        memcpy(digest + 4 * i, &big, 4);
    }
    return 1;
}
