// Encodes text that never repeats with one encoder: soak_tokenizer GB. Prints the speed and the resident memory after
// each gigabyte. Exits with 1 when the memory grew by more than GROWTH_MAX after the first one.
#include "common/err.h"
#include "common/log.h"
#include "common/rng.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DOCUMENT = 1 << 20, PER_GB = 1000000000 / DOCUMENT, GROWTH_MAX = 8 << 20 };

// Words of letters of several scripts, signs, and a few bytes that are not UTF-8.
static size_t write_document(uint8_t *text, uint64_t number) {
    size_t size = 0;
    for (uint64_t turn = 0; size < DOCUMENT - 8; turn++) {
        uint64_t random = rng_u64(1, number, turn);
        unsigned kind = random & 15;
        uint32_t point = (uint32_t)(random >> 32);
        for (unsigned i = 0; i < 4; i++, random >>= 5)
            text[size++] = (uint8_t)(kind < 12 ? 'a' + (random >> 8) % 26 : '!' + (random >> 8) % 94);
        if (kind == 3) text[size++] = (uint8_t)(0xC4 + point % 16), text[size++] = (uint8_t)(0x80 | (point >> 8) % 64);
        if (kind == 4)
            text[size++] = (uint8_t)(0xE4 + point % 6), text[size++] = (uint8_t)(0x80 | (point >> 8) % 64),
            text[size++] = (uint8_t)(0x80 | (point >> 16) % 64);
        if (kind == 5 && point % 64 == 0) text[size++] = (uint8_t)(0x80 | point >> 24);
        if (kind % 2) text[size++] = ' ';
    }
    return size;
}

static size_t resident(void) {
    unsigned long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &total, &pages) != 2) die(EX_BUG, "cannot read /proc/self/statm");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

int main(int count, char **arguments) {
    unsigned long last = count == 2 ? strtoul(arguments[1], NULL, 10) : 0;
    if (!last) die(EX_USAGE, "usage: soak_tokenizer GB");
    const Vocab *vocab = vocab_open();
    if (!vocab) die(err_code(), "%s", err_text());
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    uint8_t *text = malloc(DOCUMENT);
    uint16_t *ids = malloc(encoder_ids_max(DOCUMENT) * sizeof *ids);
    if (!text || !ids) die(EX_MEMORY, "no memory for a document");
    size_t first = 0, now = 0;
    uint64_t number = 0;
    for (unsigned long gb = 1; gb <= last; gb++) {
        uint64_t spent_ns = 0, bytes = 0, written = 0;
        for (unsigned i = 0; i < PER_GB; i++) {
            Bytes document = {text, write_document(text, number++)};
            uint64_t start_ns = clock_ns();
            ssize_t got = encoder_encode(encoder, document, ids);
            if (got < 0) die(err_code(), "%s", err_text());
            spent_ns += clock_ns() - start_ns;
            bytes += document.size, written += (uint64_t)got;
        }
        now = resident();
        if (gb == 1) first = now;
        printf("%3lu GB: %6.1f MB/s, %.2f bytes an id, %6.1f MB resident\n", gb, (double)bytes * 1e3 / (double)spent_ns,
               (double)bytes / (double)written, (double)now / 1e6);
        fflush(stdout);
    }
    encoder_close(encoder);
    vocab_close(vocab);
    free(text);
    free(ids);
    return now > first + GROWTH_MAX;
}
