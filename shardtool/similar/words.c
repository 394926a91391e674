// ASCII is looked up in a table of bytes, other characters in the table of fold_unicode_table.py. On 400 MB of
// documentation and sources this takes a third of the time of the first stage (make bench-neardup).
#include "shardtool/similar/words.h"
#include "common/err.h"
#include "common/utf8.h"
#include "shardtool/similar/fold_unicode_table.h"
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

// As in fold_unicode_table.py. The value above the low three bits is a digit, a code point or the index of a pair.
typedef enum { FOLD_SELF, FOLD_BLANK, FOLD_DROP, FOLD_DIGIT, FOLD_ALONE, FOLD_POINT, FOLD_PAIR } FoldKind;

enum {
    OUT_MAX = 3, // bytes of the normal form for a byte: a Hangul syllable of 3 bytes has 3 letters of 3 bytes
    SLACK = 16,  // behind it
    HANGUL_FIRST = 0xAC00,
    HANGUL_END = 0xD7A4,
    HANGUL_LEADS = 0x1100,
    HANGUL_VOWELS = 0x1161,
    HANGUL_TAILS = 0x11A7, // none, then the first
};

// ASCII: the letter in lower case; 0: anything else.
static const uint8_t letters[256] = {
#define LETTER(upper, lower) [upper] = lower, [lower] = lower
    LETTER('A', 'a'), LETTER('B', 'b'), LETTER('C', 'c'), LETTER('D', 'd'), LETTER('E', 'e'), LETTER('F', 'f'),
    LETTER('G', 'g'), LETTER('H', 'h'), LETTER('I', 'i'), LETTER('J', 'j'), LETTER('K', 'k'), LETTER('L', 'l'),
    LETTER('M', 'm'), LETTER('N', 'n'), LETTER('O', 'o'), LETTER('P', 'p'), LETTER('Q', 'q'), LETTER('R', 'r'),
    LETTER('S', 's'), LETTER('T', 't'), LETTER('U', 'u'), LETTER('V', 'v'), LETTER('W', 'w'), LETTER('X', 'x'),
    LETTER('Y', 'y'), LETTER('Z', 'z'),
#undef LETTER
};

typedef struct {
    TextWords *words;
    const uint8_t *at, *end;
    uint8_t *out;
    bool in_word;
} Folding;

static inline void end_word(Folding *folding) {
    if (folding->in_word) *folding->out++ = ' ';
    folding->in_word = false;
}

static inline void add_word(TextWords *words, size_t start) {
    if (words->count + 2 > words->capacity) {
        words->capacity = 2 * words->capacity + 1024;
        words->starts = realloc(words->starts, words->capacity * sizeof *words->starts);
        if (!words->starts) die(EX_MEMORY, "no memory for %zu words", words->capacity);
    }
    words->starts[words->count++] = start;
}

static inline void begin_word(Folding *folding) {
    if (folding->in_word) return;
    folding->in_word = true;
    add_word(folding->words, (size_t)(folding->out - folding->words->text.data));
}

static inline void put(Folding *folding, uint32_t point) {
    begin_word(folding);
    folding->out += utf8_encode(point, folding->out);
}

static uint32_t entry_of(uint32_t point) {
    if (point >= FOLD_END) return point > UTF8_LAST ? FOLD_BLANK : FOLD_SELF;
    return fold_entries[fold_index[point / FOLD_BLOCK]][point % FOLD_BLOCK];
}

static uint64_t mix(uint64_t digits, uint32_t value) { return (digits ^ (value + 1)) * 0x9E3779B97F4A7C15u; }

// Passes decimal digits, and invisible characters and marks among them; returns whether there was a digit.
static bool take_digits(Folding *folding) {
    bool found = false;
    uint64_t digits = folding->words->digits;
    while (folding->at < folding->end) {
        uint32_t point, entry = 0, value = (uint32_t)(*folding->at - '0');
        unsigned length = 1;
        if (*folding->at >= 0x80) {
            length = utf8_decode(folding->at, folding->end, &point);
            entry = entry_of(point);
            value = entry % 8 == FOLD_DIGIT ? entry / 8 : 10;
        }
        if (value <= 9)
            digits = mix(digits, value), found = true;
        else if (entry != FOLD_DROP)
            break;
        folding->at += length;
    }
    folding->words->digits = digits;
    return found;
}

// The decimal separators of datatrove: point, comma, Arabic comma and separator, and the symbols of Unicode.
static bool is_separator(uint32_t point) {
    return point == '.' || point == ',' || point == 0x60C || point == 0x66B || (point >= 0x2396 && point <= 0x2398);
}

static void take_number(Folding *folding) {
    put(folding, '0');
    take_digits(folding);
    uint64_t *const digits = &folding->words->digits, whole = *digits;
    const uint8_t *const after = folding->at;
    uint32_t point;
    if (after < folding->end) {
        folding->at += utf8_decode(after, folding->end, &point);
        *digits = mix(whole, point);
        if (!is_separator(point) || !take_digits(folding)) folding->at = after, *digits = whole;
    }
    *digits = mix(*digits, 10); // the end of a number
}

static void put_hangul(Folding *folding, uint32_t point) {
    const uint32_t syllable = point - HANGUL_FIRST, tail = syllable % 28;
    put(folding, HANGUL_LEADS + syllable / (21 * 28));
    put(folding, HANGUL_VOWELS + syllable / 28 % 21);
    if (tail) put(folding, HANGUL_TAILS + tail);
}

static void take_beyond(Folding *folding) {
    uint32_t point;
    const unsigned length = utf8_decode(folding->at, folding->end, &point);
    const uint32_t entry = entry_of(point), value = entry / 8;
    const FoldKind kind = entry % 8;
    if (kind == FOLD_DIGIT) {
        take_number(folding);
        return;
    }
    folding->at += length;
    if (kind == FOLD_DROP) return;
    if (kind == FOLD_BLANK || kind == FOLD_ALONE) end_word(folding);
    if (kind == FOLD_ALONE) put(folding, value ? value : point), end_word(folding);
    if (kind == FOLD_POINT) put(folding, value);
    if (kind == FOLD_PAIR) put(folding, fold_pairs[value][0]), put(folding, fold_pairs[value][1]);
    if (kind != FOLD_SELF) return;
    if (point >= HANGUL_FIRST && point < HANGUL_END)
        put_hangul(folding, point);
    else
        put(folding, point);
}

void words_set(TextWords *words, Bytes text) {
    words->text.size = words->count = 0, words->digits = 0;
    buffer_reserve(&words->text, OUT_MAX * text.size + SLACK);
    Folding folding = {words, text.data, text.data + text.size, words->text.data, false};
    while (folding.at < folding.end) {
        const uint8_t letter = letters[*folding.at];
        if (letter) {
            begin_word(&folding);
            const uint8_t *at = folding.at, *const end = folding.end;
            uint8_t *out = folding.out;
            for (uint8_t next = letter; next; next = ++at < end ? letters[*at] : 0) *out++ = next;
            folding.at = at, folding.out = out;
        } else if (*folding.at >= 0x80)
            take_beyond(&folding);
        else if (*folding.at >= '0' && *folding.at <= '9')
            take_number(&folding);
        else
            end_word(&folding), folding.at++;
    }
    end_word(&folding);
    words->text.size = (size_t)(folding.out - words->text.data);
    if (words->count) words->starts[words->count] = words->text.size--;
}

void words_split(TextWords *words) {
    const Bytes text = {words->text.data, words->text.size};
    words->count = 0;
    for (size_t at = 0; at < text.size; at++) {
        add_word(words, at);
        while (at < text.size && text.data[at] != ' ') at++;
    }
    if (words->count) words->starts[words->count] = text.size + 1;
}

void words_close(TextWords *words) {
    buffer_close(&words->text);
    free(words->starts);
    *words = (TextWords){0};
}

size_t words_hash(const TextWords *words, size_t length, Buffer *hashes) {
    hashes->size = 0;
    if (!words->count) return 0;
    if (length > words->count) length = words->count;
    const size_t count = words->count - length + 1;
    buffer_reserve(hashes, count * sizeof(uint64_t));
    for (size_t i = 0; i < count; i++) {
        const Bytes span = words_span(words, i, length);
        put_u64(hashes->data + i * sizeof(uint64_t), XXH64(span.data, span.size, 0));
    }
    hashes->size = count * sizeof(uint64_t);
    return count;
}
