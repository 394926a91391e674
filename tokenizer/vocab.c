// Opens the merge table: one merge a line, best first, bytes spelt as printable code points. Ids follow from the order.
#include "tokenizer/vocab.h"
#include "common/err.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/hugepages.h"
#include "tokenizer/trie.h"
#include <assert.h>

extern const uint8_t gpt2_merges_begin[], gpt2_merges_end[];

static const char table_sha[] = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";

// Printable Latin-1 stands for itself and comes first in id order; the other 68 bytes are spelt U+0100 upwards.
static bool is_printable(unsigned byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte != 173); }

enum { NAME_SLOTS = 1 << 17 }; // of tokens by their bytes: 38 % full

// What building takes and nobody needs afterwards.
typedef struct {
    Vocab *vocab;
    unsigned count;
    uint8_t byte_of[512];       // of a code point
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

// The next token's bytes are text[0 .. size).
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

// One side of a merge: its bytes go to `out`, its id comes back. Stops after the blank or newline behind it.
static unsigned read_side(const Builder *builder, const uint8_t **at, uint8_t *out, size_t *size) {
    for (*size = 0; **at != ' ' && **at != '\n'; (*size)++) {
        unsigned point = *(*at)++;
        if (point >= 0x80) point = (point & 31) << 6 | (*(*at)++ & 63u);
        out[*size] = builder->byte_of[point];
    }
    (*at)++;
    return name_find(builder, out, *size, &(uint32_t){0});
}

static void add_bytes(Builder *builder) {
    unsigned spelt = 256;
    for (int printable = 1; printable >= 0; printable--)
        for (unsigned byte = 0; byte < 256; byte++) {
            if (is_printable(byte) != printable) continue;
            builder->byte_of[printable ? byte : spelt++] = (uint8_t)byte;
            builder->vocab->byte_token[byte] = (uint16_t)builder->count;
            add_token(builder, &(uint8_t){(uint8_t)byte}, 1, 0);
        }
}

// The ids a text must have before anything is encoded: damage in memory or a wrong build ends here.
static int self_check(const Vocab *vocab) {
    static const char text[] = "Hello world, it's 2026!\n\n  \xE4\xB8\xAD\xD0\xB6\xC2\xA0 x<|endoftext|>";
    static const uint16_t want[] = {15496, 995, 11,   340,  338, 1160, 2075, 0,    628,  220, 220, 40792,
                                    140,   114, 1849, 2124, 27,  91,   437,  1659, 5239, 91,  29};
    uint16_t got[3 * sizeof text + 64]; // encode_bound
    Encoder *encoder = encoder_open(vocab, INVALID_FAIL, NULL);
    ssize_t count = encoder_encode(encoder, (Bytes){(const uint8_t *)text, sizeof text - 1}, got);
    encoder_close(encoder);
    if (count * 2 == sizeof want && !memcmp(got, want, sizeof want)) return 0;
    return fail(EX_BUG, "the tokenizer fails its self-check: this build or this machine does not compute right");
}

static const Vocab *open_table(Bytes table, const char *name) {
    uint8_t digest[32];
    char hex[65];
    sha256(table.data, table.size, digest);
    hex_encode(hex, digest, sizeof digest);
    if (strcmp(hex, table_sha)) {
        fail(EX_DATA, "'%s' is not the merge table of GPT-2: its SHA-256 is %s, expected %s", name, hex, table_sha);
        return NULL;
    }
    // from here on the content is known byte by byte
    Vocab *vocab = hugepages_alloc_or_die(sizeof *vocab);
    Builder *builder = hugepages_alloc_or_die(sizeof *builder);
    builder->vocab = vocab;
    memset(vocab->byte_merged, 0xFF, sizeof vocab->byte_merged); // NO_TOKEN
    add_bytes(builder);
    const uint8_t *at = memchr(table.data, '\n', table.size); // behind the version line
    for (at++; at < table.data + table.size;) {
        uint8_t token[TOKEN_MAX_BYTES];
        size_t left_size, right_size;
        uint32_t left = read_side(builder, &at, token, &left_size);
        uint32_t right = read_side(builder, &at, token + left_size, &right_size);
        add_token(builder, token, left_size + right_size, left << 16 | right);
    }
    assert(builder->count == MERGED_COUNT && vocab->start[MERGED_COUNT] == TOKEN_BYTES);
    hugepages_free(builder);
    if (self_check(vocab) == 0) return vocab;
    vocab_close(vocab);
    return NULL;
}

const Vocab *vocab_open(void) {
    return open_table((Bytes){gpt2_merges_begin, (size_t)(gpt2_merges_end - gpt2_merges_begin)}, "built-in table");
}

const Vocab *vocab_open_file(const char *path) {
    Bytes table;
    if (file_map(&table, path) < 0) return NULL;
    const Vocab *vocab = open_table(table, path);
    file_unmap(&table);
    return vocab;
}

void vocab_close(const Vocab *vocab) {
    if (!vocab) return;
    trie_close(vocab->trie);
    hugepages_free((void *)(uintptr_t)vocab);
}

Bytes vocab_bytes(const Vocab *vocab, uint16_t id) {
    static const char end_of_text[] = "<|endoftext|>";
    assert(id < TOKEN_COUNT);
    if (id == TOKEN_END_OF_TEXT) return (Bytes){(const uint8_t *)end_of_text, sizeof end_of_text - 1};
    return (Bytes){vocab->bytes + vocab->start[id], vocab_length(vocab, id)};
}

void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]) {
    Buffer all = {0}; // hashed in one go: a hundred thousand small pieces take three times as long
    buffer_add(&all, "GPT2BPE1\n", 9);
    uint8_t number[4];
    for (unsigned id = 0; id < TOKEN_COUNT; id++) {
        Bytes token = vocab_bytes(vocab, (uint16_t)id);
        put_u32(number, (uint32_t)token.size);
        buffer_add(&all, number, sizeof number);
        buffer_add(&all, token.data, token.size);
    }
    put_u32(number, TOKEN_END_OF_TEXT);
    buffer_add(&all, number, sizeof number);
    sha256(all.data, all.size, fingerprint);
    buffer_close(&all);
}
