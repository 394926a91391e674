// Opens the merge table: one merge a line, best first, bytes spelt as printable code points. Ids follow from the order.
#include "tokenizer/vocab.h"
#include "common/err.h"
#include "common/file.h"
#include "common/hash.h"
#include <assert.h>
#include <stdlib.h>

extern const uint8_t gpt2_merges_begin[], gpt2_merges_end[];

static const char table_sha[] = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";

// Printable Latin-1 stands for itself and comes first in id order; the other 68 bytes are spelt U+0100 upwards.
static bool is_printable(unsigned byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte != 173); }

static uint64_t *edge_slot(Vocab *vocab, uint32_t node, uint8_t byte) {
    uint32_t key = node << 8 | byte, slot = trie_slot(vocab_hash(key));
    while (vocab->trie_slots[slot] && (vocab->trie_slots[slot] & 0x1FFFFFF) != key) slot = (slot + 1) % TRIE_SLOTS;
    return &vocab->trie_slots[slot];
}

typedef struct {
    Vocab *vocab;
    unsigned count;
    uint32_t nodes;
    uint8_t byte_of[512]; // of a code point
} Builder;

// The next token's bytes are text[0 .. size).
static void add_token(Builder *builder, const uint8_t *text, size_t size, uint32_t pair) {
    Vocab *vocab = builder->vocab;
    unsigned id = builder->count++;
    uint8_t *bytes = vocab->bytes + vocab->start[id];
    memmove(bytes, text, size);
    vocab->start[id + 1] = vocab->start[id] + (uint32_t)size;
    vocab->pair[id] = pair;
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        uint64_t *edge = edge_slot(vocab, node, bytes[i]);
        if (!*edge) *edge = (uint64_t)NO_TOKEN << 42 | (uint64_t)++builder->nodes << 25 | node << 8 | bytes[i];
        if (i + 1 == size) *edge = (*edge & ((1ull << 42) - 1)) | (uint64_t)id << 42;
        node = edge_child(*edge);
    }
    if (id < BYTE_TOKENS) return;
    if (size == 2) vocab->byte_merged[bytes[0]][bytes[1]] = (uint16_t)id;
    uint64_t hash = vocab_hash(pair);
    uint32_t slot = pair_slot(hash);
    while (vocab->pair_slots[slot]) slot = (slot + 1) % PAIR_SLOTS;
    vocab->pair_slots[slot] = (uint32_t)pair_tag(hash) << 16 | id;
}

// One side of a merge: its bytes go to `out`, its id comes back. Stops after the blank or newline behind it.
static unsigned read_side(const Builder *builder, const uint8_t **at, uint8_t *out, size_t *size) {
    uint64_t edge = 0;
    *size = 0;
    for (; **at != ' ' && **at != '\n'; (*size)++) {
        unsigned point = *(*at)++;
        if (point >= 0x80) point = (point & 31) << 6 | (*(*at)++ & 63u);
        out[*size] = builder->byte_of[point];
        edge = vocab_edge(builder->vocab, edge_child(edge), out[*size]);
    }
    (*at)++;
    return edge_token(edge);
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

static void find_shorter(Vocab *vocab) {
    for (unsigned id = 0; id < MERGED_COUNT; id++) {
        size_t size = vocab_length(vocab, id);
        vocab->shorter[id] =
            size > 1 ? (uint16_t)vocab_longest(vocab, vocab->bytes + vocab->start[id], size - 1) : NO_TOKEN;
    }
}

// The ids a text must have before anything is encoded: damage in memory or a wrong build ends here.
static int self_check(const Vocab *vocab) {
    static const char text[] = "Hello world, it's 2026!\n\n  \xE4\xB8\xAD\xD0\xB6\xC2\xA0 x<|endoftext|>";
    static const uint16_t want[] = {15496, 995, 11,   340,  338, 1160, 2075, 0,    628,  220, 220, 40792,
                                    140,   114, 1849, 2124, 27,  91,   437,  1659, 5239, 91,  29};
    uint16_t got[3 * sizeof text + 64]; // encode_bound
    Encoder *encoder = encoder_open(vocab, INVALID_FAIL, NULL);
    ssize_t count = encode(encoder, (Bytes){(const uint8_t *)text, sizeof text - 1}, got);
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
    Vocab *vocab = calloc(1, sizeof *vocab);
    if (!vocab) die(EX_MEMORY, "no memory for the vocabulary");
    Builder builder = {.vocab = vocab};
    memset(vocab->byte_merged, 0xFF, sizeof vocab->byte_merged); // NO_TOKEN
    add_bytes(&builder);
    const uint8_t *at = memchr(table.data, '\n', table.size); // behind the version line
    for (at++; at < table.data + table.size;) {
        uint8_t token[TOKEN_MAX_BYTES];
        size_t left_size, right_size;
        uint32_t left = read_side(&builder, &at, token, &left_size);
        uint32_t right = read_side(&builder, &at, token + left_size, &right_size);
        add_token(&builder, token, left_size + right_size, left << 16 | right);
    }
    assert(builder.count == MERGED_COUNT && vocab->start[MERGED_COUNT] == TOKEN_BYTES);
    find_shorter(vocab);
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

void vocab_close(const Vocab *vocab) { free((void *)(uintptr_t)vocab); }

Bytes vocab_bytes(const Vocab *vocab, uint16_t id) {
    static const char end_of_text[] = "<|endoftext|>";
    assert(id < TOKEN_COUNT);
    if (id == TOKEN_END_OF_TEXT) return (Bytes){(const uint8_t *)end_of_text, sizeof end_of_text - 1};
    return (Bytes){vocab->bytes + vocab->start[id], vocab_length(vocab, id)};
}

void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]) {
    Sha256 sha;
    sha256_open(&sha);
    sha256_add(&sha, "GPT2BPE1\n", 9);
    for (unsigned id = 0; id < TOKEN_COUNT; id++) {
        Bytes token = vocab_bytes(vocab, (uint16_t)id);
        uint8_t length[4];
        put_u32(length, (uint32_t)token.size);
        sha256_add(&sha, length, sizeof length);
        sha256_add(&sha, token.data, token.size);
    }
    uint8_t end_of_text[4];
    put_u32(end_of_text, TOKEN_END_OF_TEXT);
    sha256_add(&sha, end_of_text, sizeof end_of_text);
    sha256_close(&sha, fingerprint);
}

unsigned vocab_longest(const Vocab *vocab, const uint8_t *text, size_t size) {
    unsigned longest = NO_TOKEN;
    uint64_t edge = 0;
    for (size_t i = 0; i < size && (edge = vocab_edge(vocab, edge_child(edge), text[i])); i++)
        if (edge_token(edge) != NO_TOKEN) longest = edge_token(edge);
    return longest;
}
