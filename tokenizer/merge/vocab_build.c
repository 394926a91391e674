// Builds the vocabulary from the merge table: one merge a line, best first, bytes written as printable code points. The
// ids follow from the order.
#include "common/err.h"
#include "common/hash.h"
#include "common/machine/hugepages.h"
#include "tokenizer/merge/bpe.h"
#include "tokenizer/merge/trie.h"
#include "tokenizer/merge/vocab_internal.h"
#include <assert.h>
#include <stdlib.h>

enum { DECODE_BYTES = 16 }; // copied at once; so many may be read after the last token

extern const uint8_t gpt2_merges_begin[], gpt2_merges_end[];

// Printable Latin-1 is written as itself and comes first in id order; the other 68 bytes are written as U+0100 upwards.
static bool is_printable(unsigned byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte != 173); }

uint32_t vocab_spelling(uint8_t byte) {
    uint32_t point = 256;
    if (is_printable(byte)) return byte;
    for (unsigned other = 0; other < byte; other++) point += !is_printable(other);
    return point;
}

// ---- tokens and merges

static unsigned shift_for(size_t count) { // of a table that is at most half full
    unsigned shift = 54;
    while (1ull << (64 - shift) < 2 * count) shift--;
    return shift;
}

static void *take(uint8_t **at, size_t bytes) {
    uint8_t *taken = *at;
    *at += bytes;
    return taken;
}

Vocab *vocab_new(unsigned tokens, size_t bytes, size_t pairs) {
    const unsigned shift = shift_for(pairs);
    const size_t slots = (size_t)1 << (64 - shift);
    // in one block, which for GPT-2's vocabulary fits a huge page
    Vocab *vocab = hugepages_alloc_or_die(sizeof *vocab + (tokens + pairs) * sizeof *vocab->pair +
                                          slots * sizeof *vocab->pair_slots + (tokens + 1) * sizeof *vocab->start +
                                          bytes + tokens / 8 + 1 + DECODE_BYTES);
    uint8_t *at = (uint8_t *)(vocab + 1);
    vocab->pair = take(&at, (tokens + pairs) * sizeof *vocab->pair);
    vocab->pair_slots = take(&at, slots * sizeof *vocab->pair_slots);
    vocab->start = take(&at, (tokens + 1) * sizeof *vocab->start);
    vocab->bytes = take(&at, bytes);
    vocab->special = at;
    memset(vocab->byte_token, 0xFF, sizeof vocab->byte_token);   // NO_TOKEN
    memset(vocab->byte_merged, 0xFF, sizeof vocab->byte_merged); // NO_SMALL
    vocab->id_bytes = id_bytes(tokens);
    vocab->small = tokens <= NO_SMALL;
    vocab->pair_shift = shift;
    vocab->pair_room = pairs;
    vocab->token_room = tokens;
    vocab->byte_room = bytes;
    return vocab;
}

unsigned vocab_add_token(Vocab *vocab, const uint8_t *text, size_t size) {
    const unsigned id = vocab->size++;
    assert(id < vocab->token_room && size <= vocab->byte_room - vocab->start[id]);
    memcpy(vocab->bytes + vocab->start[id], text, size);
    vocab->start[id + 1] = vocab->start[id] + (uint32_t)size;
    return id;
}

unsigned vocab_add_special(Vocab *vocab, const uint8_t *name, size_t size) {
    const unsigned id = vocab_add_token(vocab, name, size);
    vocab->special[id / 8] |= (uint8_t)(1 << id % 8);
    if (id == NO_SMALL) vocab->small = vocab->id_bytes == 2;
    return id;
}

void vocab_add_pair(Vocab *vocab, unsigned left, unsigned right, unsigned id) {
    const uint64_t pair = pair_of(left, right);
    const uint8_t *text = vocab->bytes + vocab->start[id];
    uint32_t slot, index = id;
    if (pair_find(vocab, pair, &slot) != NO_TOKEN) return;
    assert(vocab->pairs < vocab->pair_room);
    vocab->pairs++;
    if (vocab->pair[id]) index = vocab->token_room + vocab->pairs_again++;
    vocab->pair[index] = (uint64_t)id << 40 | pair;
    vocab->pair_slots[slot] = pair_tag(vocab_hash(pair)) | (index + 1);
    if (vocab->small && vocab_length(vocab, id) == 2) vocab->byte_merged[text[0]][text[1]] = (uint16_t)id;
}

static uint64_t name_hash(const uint8_t *text, size_t size) {
    uint64_t hash = size;
    for (size_t i = 0; i < size; i++) hash = (hash ^ text[i]) * 0x9E3779B97F4A7C15;
    return hash;
}

void token_names_open(TokenNames *names, const Vocab *vocab) {
    names->vocab = vocab;
    names->shift = shift_for(vocab->token_room);
    names->slots = hugepages_alloc_or_die(sizeof *names->slots << (64 - names->shift));
}

void token_names_close(TokenNames *names) { hugepages_free(names->slots); }

// The slot of the token, or the empty one where it belongs.
static uint32_t *name_slot(const TokenNames *names, const uint8_t *text, size_t size) {
    const uint32_t mask = (uint32_t)(~0ull >> names->shift);
    for (uint32_t slot = (uint32_t)(name_hash(text, size) >> names->shift);; slot = (slot + 1) & mask) {
        if (!names->slots[slot]) return &names->slots[slot];
        const unsigned id = names->slots[slot] - 1;
        if (vocab_length(names->vocab, id) == size &&
            !memcmp(names->vocab->bytes + names->vocab->start[id], text, size))
            return &names->slots[slot];
    }
}

void token_names_add(TokenNames *names, unsigned id) {
    uint32_t *slot = name_slot(names, names->vocab->bytes + names->vocab->start[id], vocab_length(names->vocab, id));
    if (!*slot) *slot = id + 1;
}

unsigned token_names_find(const TokenNames *names, const uint8_t *text, size_t size) {
    const uint32_t *slot = name_slot(names, text, size);
    return *slot ? *slot - 1 : NO_TOKEN;
}

// Whether merging the token's bytes gives the token.
static bool makes_itself(const Vocab *vocab, unsigned id) {
    const Bytes token = vocab_bytes(vocab, id);
    void *ids = allocate_zeroed(token.size, vocab->id_bytes);
    const bool itself =
        bpe_merge(vocab, token.data, token.size, ids, NULL) == 1 && id_at(ids, 0, vocab->id_bytes) == id;
    free(ids);
    return itself;
}

void vocab_finish(Vocab *vocab) {
    bool regular = vocab->count >= BYTE_TOKENS && vocab->pairs == vocab->count - BYTE_TOKENS;
    vocab->first_merge = vocab->size;
    for (unsigned id = 0, bytes = 0; id < vocab->size; id++) {
        const unsigned left = pair_left_id(vocab->pair[id]), right = pair_right_id(vocab->pair[id]),
                       later = left > right ? left : right;
        if (vocab_is_special(vocab, id)) continue;
        if (bytes++ == BYTE_TOKENS) vocab->first_merge = id;
        regular &= bytes <= BYTE_TOKENS ? vocab_length(vocab, id) == 1 : later < id && vocab_length(vocab, id) > 1;
        if (makes_itself(vocab, id)) continue;
        regular = false, vocab->unmade = true;
        if (!vocab->whole_pieces) continue;
        if (!vocab->whole) {
            vocab->whole = allocate_zeroed(1, sizeof *vocab->whole);
            token_names_open(vocab->whole, vocab);
        }
        token_names_add(vocab->whole, id);
    }
    if (regular) vocab->trie = trie_open();
}

// ---- GPT-2's merge table

// Needed only while the vocabulary is built.
typedef struct {
    Vocab *vocab;
    TokenNames names;
    uint8_t bytes[512]; // by the code point they are written as
} Builder;

// Reads one side of a merge up to and including the blank or newline after it: writes its bytes to `out`, returns its
// id.
static unsigned read_side(const Builder *builder, const uint8_t **at, uint8_t *out, size_t *size) {
    for (*size = 0; **at != ' ' && **at != '\n'; (*size)++) {
        unsigned point = *(*at)++;
        if (point >= 0x80) point = (point & 31) << 6 | (*(*at)++ & 63u);
        out[*size] = builder->bytes[point];
    }
    (*at)++;
    return token_names_find(&builder->names, out, *size);
}

static void add_bytes(Builder *builder) {
    unsigned point = 256;
    for (int printable = 1; printable >= 0; printable--)
        for (unsigned byte = 0; byte < 256; byte++) {
            if (is_printable(byte) != printable) continue;
            builder->bytes[printable ? byte : point++] = (uint8_t)byte;
            const unsigned id = vocab_add_token(builder->vocab, &(uint8_t){(uint8_t)byte}, 1);
            builder->vocab->byte_token[byte] = id;
            token_names_add(&builder->names, id);
        }
}

Vocab *vocab_build(void) {
    static const char end_of_text[] = "<|endoftext|>";
    Vocab *vocab = vocab_new(TOKEN_COUNT, TOKEN_BYTES, MERGED_COUNT);
    Builder builder = {.vocab = vocab};
    token_names_open(&builder.names, vocab);
    add_bytes(&builder);
    const uint8_t *at = rawmemchr(gpt2_merges_begin, '\n'); // after the version line
    for (at++; at < gpt2_merges_end;) {
        uint8_t token[TOKEN_MAX_BYTES];
        size_t left_size, right_size;
        uint32_t left = read_side(&builder, &at, token, &left_size);
        uint32_t right = read_side(&builder, &at, token + left_size, &right_size);
        const unsigned id = vocab_add_token(vocab, token, left_size + right_size);
        token_names_add(&builder.names, id);
        vocab_add_pair(vocab, left, right, id);
    }
    token_names_close(&builder.names);
    vocab->count = MERGED_COUNT, vocab->first_merge = BYTE_TOKENS;
    vocab->is_gpt2 = true;
    vocab->end_of_text = vocab_add_special(vocab, (const uint8_t *)end_of_text, sizeof end_of_text - 1);
    vocab->trie = trie_open();
    assert(vocab->size == TOKEN_COUNT && vocab->start[TOKEN_COUNT] == TOKEN_BYTES);
    return vocab;
}

void vocab_close(const Vocab *vocab) {
    if (!vocab) return;
    if (vocab->trie) trie_close(vocab->trie);
    free(vocab->characters);
    if (vocab->whole) token_names_close(vocab->whole);
    free(vocab->whole);
    hugepages_free((void *)(uintptr_t)vocab);
}

unsigned vocab_size(const Vocab *vocab) { return vocab->size; }
unsigned vocab_end_of_text(const Vocab *vocab) { return vocab->end_of_text; }
unsigned vocab_id_bytes(const Vocab *vocab) { return vocab->id_bytes; }
bool vocab_is_special(const Vocab *vocab, unsigned id) { return vocab->special[id / 8] >> id % 8 & 1; }

Bytes vocab_bytes(const Vocab *vocab, unsigned id) {
    assert(id < vocab->size);
    return (Bytes){vocab->bytes + vocab->start[id], vocab_length(vocab, id)};
}

// Copies 16 bytes for each shorter token: a copy of a fixed size is faster than one of the exact size, and the next
// token overwrites the extra bytes. With exact sizes `dedup --similar` spent a quarter of its time in copies.
int vocab_decode(const Vocab *vocab, const void *ids, size_t count, Buffer *out) {
    buffer_reserve(out, DECODE_BYTES);
    uint8_t *at = out->data + out->size, *end = out->data + out->capacity - DECODE_BYTES;
    int status = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned id = id_at(ids, i, vocab->id_bytes);
        if (id >= vocab->size) {
            status = fail(EX_DATA, "id %u at %zu is not below %u", id, i, vocab_size(vocab));
            break;
        }
        const Bytes token = vocab_bytes(vocab, id);
        if ((size_t)(end - at) < token.size) {
            out->size = (size_t)(at - out->data);
            buffer_reserve(out, token.size + DECODE_BYTES);
            at = out->data + out->size, end = out->data + out->capacity - DECODE_BYTES;
        }
        memcpy(at, token.data, DECODE_BYTES);
        if (token.size > DECODE_BYTES) memcpy(at, token.data, token.size);
        at += token.size;
    }
    out->size = (size_t)(at - out->data);
    return status;
}

static int compare_merges(const void *a, const void *b) { // by id, then by the pair
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

uint64_t *vocab_pairs(const Vocab *vocab) {
    uint64_t *merges = allocate_zeroed(vocab->pairs + 1, sizeof *merges);
    size_t count = 0;
    for (size_t i = 0; i < vocab->token_room + vocab->pairs_again; i++)
        if (vocab->pair[i]) merges[count++] = vocab->pair[i];
    qsort(merges, count, sizeof *merges, compare_merges);
    return merges;
}

bool vocab_is_gpt2(const Vocab *vocab) { return vocab->is_gpt2; }
const char *vocab_pattern(const Vocab *vocab) { return vocab->characters ? NULL : pattern_name(vocab->pattern); }
bool vocab_encodes_pieces(const Vocab *vocab, bool whole) { return !vocab->unmade || vocab->whole_pieces == whole; }

// Adds the bytes that are hashed before the tokens, for vocabularies of other tools.
static void add_merges(const Vocab *vocab, Buffer *out) {
    buffer_print(out, "BYTEBPE1\n%s %d %u %u\n", pattern_name(vocab->pattern), vocab->whole_pieces, vocab->count,
                 vocab->pairs);
    uint64_t *merges = vocab_pairs(vocab);
    for (unsigned i = 0; i < vocab->pairs; i++) {
        uint32_t ids[3];
        id_put(ids, 0, vocab->id_bytes, pair_left_id(merges[i]));
        id_put(ids, 1, vocab->id_bytes, pair_right_id(merges[i]));
        id_put(ids, 2, vocab->id_bytes, (uint32_t)(merges[i] >> 40));
        buffer_add(out, ids, 3 * vocab->id_bytes);
    }
    free(merges);
}

void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]) {
    Buffer all = {0}; // hashed in one call: a hundred thousand small ones take three times as long
    if (vocab->characters || vocab->is_gpt2)
        buffer_print(&all, "%s\n", vocab->characters ? "CHARACT1" : "GPT2BPE1");
    else
        add_merges(vocab, &all);
    uint8_t number[4];
    for (unsigned id = 0; id < vocab->size; id++) {
        Bytes token = vocab_bytes(vocab, id);
        put_u32(number, (uint32_t)token.size);
        buffer_add(&all, number, sizeof number);
        buffer_add(&all, token.data, token.size);
    }
    put_u32(number, vocab->end_of_text);
    buffer_add(&all, number, sizeof number);
    bool is_last = true; // the special tokens
    for (unsigned id = 0; id < vocab->count; id++) is_last &= !vocab_is_special(vocab, id);
    for (unsigned id = 0; !is_last && id < vocab->size; id++) {
        put_u32(number, id);
        if (vocab_is_special(vocab, id)) buffer_add(&all, number, sizeof number);
    }
    sha256(all.data, all.size, fingerprint);
    buffer_close(&all);
}

bool vocab_is_gpt2_fingerprint(const uint8_t fingerprint[32]) {
    static const uint8_t of_gpt2[32] = {0x4A, 0x15, 0x5E, 0x7C, 0xCD, 0x30, 0x0E, 0x17, 0xA6, 0xAE, 0x4A,
                                        0xCF, 0xEC, 0xC7, 0x7A, 0x9A, 0xBD, 0x08, 0x6F, 0xF7, 0x8A, 0x6F,
                                        0x5B, 0x52, 0xC5, 0x36, 0x49, 0x90, 0x71, 0x74, 0x8E, 0x6C};
    return !memcmp(fingerprint, of_gpt2, sizeof of_gpt2);
}

bool vocab_has_fingerprint(const Vocab *vocab, const uint8_t fingerprint[32]) {
    uint8_t own[32];
    vocab_fingerprint(vocab, own);
    return !memcmp(own, fingerprint, sizeof own);
}
