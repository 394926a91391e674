// Builds the vocabulary from the merge table: one merge a line, best first, bytes written as printable code points. The
// ids follow from the order.
#include "common/err.h"
#include "common/hash.h"
#include "common/machine/hugepages.h"
#include "tokenizer/merge/trie.h"
#include "tokenizer/merge/vocab_internal.h"
#include <assert.h>
#include <stdlib.h>

extern const uint8_t gpt2_merges_begin[], gpt2_merges_end[];
Bytes vocab_merges(void) { return (Bytes){gpt2_merges_begin, (size_t)(gpt2_merges_end - gpt2_merges_begin)}; }

static const char table_sha[] = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";

// Printable Latin-1 is written as itself and comes first in id order; the other 68 bytes are written as U+0100 upwards.
static bool is_printable(unsigned byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte != 173); }

uint32_t vocab_spelling(uint8_t byte) {
    uint32_t point = 256;
    if (is_printable(byte)) return byte;
    for (unsigned other = 0; other < byte; other++) point += !is_printable(other);
    return point;
}

enum { NAME_SLOTS = 1 << 17 }; // of tokens by their bytes: 38 % full

// Needed only while the vocabulary is built.
typedef struct {
    Vocab *vocab;
    unsigned count;
    uint8_t bytes[512];         // by the code point they are written as
    uint16_t names[NAME_SLOTS]; // id + 1 by the hash of the token's bytes; 0 = empty
} Builder;

static uint32_t name_slot(uint64_t hash) { return (uint32_t)(hash >> 47); }
static uint64_t name_hash(const uint8_t *text, size_t size) {
    uint64_t hash = size;
    for (size_t i = 0; i < size; i++) hash = (hash ^ text[i]) * 0x9E3779B97F4A7C15;
    return hash;
}

// The token's id, or the empty slot where it belongs.
static unsigned name_find(const Builder *builder, const uint8_t *text, size_t size, uint32_t *slot) {
    const Vocab *vocab = builder->vocab;
    for (*slot = name_slot(name_hash(text, size)); builder->names[*slot]; *slot = (*slot + 1) % NAME_SLOTS) {
        unsigned id = builder->names[*slot] - 1u;
        if (vocab_length(vocab, id) == size && !memcmp(vocab->bytes + vocab->start[id], text, size)) return id;
    }
    return NO_TOKEN;
}

// Adds the next token, whose bytes are text[0 .. size).
static void add_token(Builder *builder, const uint8_t *text, size_t size, uint32_t pair) {
    Vocab *vocab = builder->vocab;
    unsigned id = builder->count++;
    uint32_t slot;
    name_find(builder, text, size, &slot);
    builder->names[slot] = (uint16_t)(id + 1);
    memcpy(vocab->bytes + vocab->start[id], text, size);
    vocab->start[id + 1] = vocab->start[id] + (uint32_t)size;
    vocab->pair[id] = pair;
    if (id < BYTE_TOKENS) return;
    if (size == 2) vocab->byte_merged[text[0]][text[1]] = (uint16_t)id;
    uint64_t hash = vocab_hash(pair);
    slot = pair_slot(hash);
    while (vocab->pair_slots[slot]) slot = (slot + 1) % PAIR_SLOTS;
    vocab->pair_slots[slot] = (uint32_t)pair_tag(hash) << 16 | id;
}

// Reads one side of a merge up to and including the blank or newline after it: writes its bytes to `out`, returns its
// id.
static unsigned read_side(const Builder *builder, const uint8_t **at, uint8_t *out, size_t *size) {
    for (*size = 0; **at != ' ' && **at != '\n'; (*size)++) {
        unsigned point = *(*at)++;
        if (point >= 0x80) point = (point & 31) << 6 | (*(*at)++ & 63u);
        out[*size] = builder->bytes[point];
    }
    (*at)++;
    return name_find(builder, out, *size, &(uint32_t){0});
}

static void add_bytes(Builder *builder) {
    unsigned point = 256;
    for (int printable = 1; printable >= 0; printable--)
        for (unsigned byte = 0; byte < 256; byte++) {
            if (is_printable(byte) != printable) continue;
            builder->bytes[printable ? byte : point++] = (uint8_t)byte;
            builder->vocab->byte_token[byte] = (uint16_t)builder->count;
            add_token(builder, &(uint8_t){(uint8_t)byte}, 1, 0);
        }
}

Vocab *vocab_build(Bytes table, const char *name) {
    uint8_t digest[32];
    char hex[65];
    sha256(table.data, table.size, digest);
    hex_encode(hex, digest, sizeof digest);
    if (strcmp(hex, table_sha)) {
        fail(EX_DATA, "'%s' is not the merge table of GPT-2: its SHA-256 is %s, expected %s", name, hex, table_sha);
        return NULL;
    }
    // its content is known now, so it needs no further checks
    Vocab *vocab = hugepages_alloc_or_die(sizeof *vocab);
    Builder *builder = hugepages_alloc_or_die(sizeof *builder);
    builder->vocab = vocab;
    memset(vocab->byte_merged, 0xFF, sizeof vocab->byte_merged); // NO_TOKEN
    add_bytes(builder);
    const uint8_t *at = memchr(table.data, '\n', table.size); // after the version line
    for (at++; at < table.data + table.size;) {
        uint8_t token[TOKEN_MAX_BYTES];
        size_t left_size, right_size;
        uint32_t left = read_side(builder, &at, token, &left_size);
        uint32_t right = read_side(builder, &at, token + left_size, &right_size);
        add_token(builder, token, left_size + right_size, left << 16 | right);
    }
    assert(builder->count == MERGED_COUNT && vocab->start[MERGED_COUNT] == TOKEN_BYTES);
    hugepages_free(builder);
    vocab->count = MERGED_COUNT;
    return vocab;
}

void vocab_close(const Vocab *vocab) {
    if (!vocab) return;
    if (vocab->trie) trie_close(vocab->trie);
    free(vocab->characters);
    hugepages_free((void *)(uintptr_t)vocab);
}

unsigned vocab_size(const Vocab *vocab) { return vocab->count + 1; }
uint16_t vocab_end_of_text(const Vocab *vocab) { return (uint16_t)vocab->count; }

Bytes vocab_bytes(const Vocab *vocab, uint16_t id) {
    static const char end_of_text[] = "<|endoftext|>";
    assert(id <= vocab->count);
    if (id == vocab->count) return (Bytes){(const uint8_t *)end_of_text, sizeof end_of_text - 1};
    return (Bytes){vocab->bytes + vocab->start[id], vocab_length(vocab, id)};
}

int vocab_decode(const Vocab *vocab, const uint16_t *ids, size_t count, Buffer *out) {
    for (size_t i = 0; i < count; i++) {
        if (ids[i] > vocab->count) return fail(EX_DATA, "id %u at %zu is not below %u", ids[i], i, vocab_size(vocab));
        Bytes token = vocab_bytes(vocab, ids[i]);
        buffer_add(out, token.data, token.size);
    }
    return 0;
}

void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]) {
    Buffer all = {0}; // hashed in one call: a hundred thousand small ones take three times as long
    buffer_print(&all, "%s\n", vocab->characters ? "CHARACT1" : "GPT2BPE1");
    uint8_t number[4];
    for (unsigned id = 0; id <= vocab->count; id++) {
        Bytes token = vocab_bytes(vocab, (uint16_t)id);
        put_u32(number, (uint32_t)token.size);
        buffer_add(&all, number, sizeof number);
        buffer_add(&all, token.data, token.size);
    }
    put_u32(number, vocab->count);
    buffer_add(&all, number, sizeof number);
    sha256(all.data, all.size, fingerprint);
    buffer_close(&all);
}

bool vocab_has_fingerprint(const Vocab *vocab, const uint8_t fingerprint[32]) {
    uint8_t own[32];
    vocab_fingerprint(vocab, own);
    return !memcmp(own, fingerprint, sizeof own);
}
