// SHA-256 by OpenSSL, CRC32C by instruction if there is one.
#include "common/hash.h"
#include "common/bytes.h"
#include "common/err.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

void sha256_open(Sha256 *sha) {
    sha->context = EVP_MD_CTX_new();
    if (!sha->context || !EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL)) die(EX_MEMORY, "cannot start SHA-256");
}

void sha256_add(Sha256 *sha, const void *data, size_t size) {
    if (!EVP_DigestUpdate(sha->context, data, size)) die(EX_BUG, "SHA-256 failed");
}

void sha256_close(Sha256 *sha, uint8_t digest[32]) {
    uint8_t unused[32];
    if (!sha->context) return;
    if (!EVP_DigestFinal_ex(sha->context, digest ? digest : unused, NULL)) die(EX_BUG, "SHA-256 failed");
    EVP_MD_CTX_free(sha->context);
    sha->context = NULL;
}

void sha256(const void *data, size_t size, uint8_t digest[32]) {
    Sha256 sha;
    sha256_open(&sha);
    sha256_add(&sha, data, size);
    sha256_close(&sha, digest);
}

void hmac_sha256(const void *key, size_t key_size, const void *data, size_t size, uint8_t mac[32]) {
    if (!HMAC(EVP_sha256(), key, (int)key_size, data, size, mac, NULL)) die(EX_BUG, "HMAC-SHA-256 failed");
}

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *p, size_t size) {
    static uint32_t table[256];
    static volatile int ready; // several threads may fill the table, all with the same numbers
    if (!ready) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
            __atomic_store_n(&table[i], c, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    }
    for (size_t i = 0; i < size; i++) crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p, size_t size) {
    uint64_t c = crc;
    for (; size >= 8; p += 8, size -= 8) c = _mm_crc32_u64(c, get_u64(p));
    for (; size; p++, size--) c = _mm_crc32_u8((uint32_t)c, *p);
    return (uint32_t)c;
}

// The crc32 instruction has a latency of three cycles and a throughput of one, so three extents are computed side by
// side. Appending n bytes multiplies a CRC by x^8n mod P: a carry-less product with x^(8n-33) mod P, to which the
// product itself adds x and the crc32 instruction that reduces it adds x^32.
__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_three(uint32_t crc, const uint8_t *p, size_t size) {
    enum { EXTENT = 1024 };
    const __m128i shift = _mm_set_epi64x(0xa51b6135, 0x170076fa); // n = 2048 (high), 1024 (low)
    for (; size >= 3 * EXTENT; p += 3 * EXTENT, size -= 3 * EXTENT) {
        uint64_t a = crc, b = 0, c = 0;
        for (size_t i = 0; i < EXTENT; i += 8) {
            a = _mm_crc32_u64(a, get_u64(p + i));
            b = _mm_crc32_u64(b, get_u64(p + EXTENT + i));
            c = _mm_crc32_u64(c, get_u64(p + 2 * EXTENT + i));
        }
        __m128i ab = _mm_set_epi64x((long long)b, (long long)a);
        __m128i sum = _mm_xor_si128(_mm_clmulepi64_si128(ab, shift, 0x10), _mm_clmulepi64_si128(ab, shift, 0x01));
        crc = (uint32_t)(c ^ _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum)));
    }
    return crc32c_sse42(crc, p, size);
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t size) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return ~crc32c_three(~crc, data, size);
#endif
    return ~crc32c_portable(~crc, data, size);
}

void hex_encode(char *out, const void *data, size_t size) {
    const uint8_t *p = data;
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = "0123456789abcdef"[p[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
    }
    out[2 * size] = '\0';
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int hex_decode(void *out, const char *hex, size_t size) {
    if (!hex || strlen(hex) != 2 * size) return -1;
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) return -1;
        ((uint8_t *)out)[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}
