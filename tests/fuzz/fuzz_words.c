// Normalizes any bytes: the words have one blank between two, are equal for the text in parts of its bytes that are
// UTF-8, and the normal form of a normal form is itself. The words of a set are found again.
#include "shardtool/similar/shingles.h"
#include "tests/fuzz/fuzz.h"

static void check(const TextWords *words) {
    const Bytes text = {words->text.data, words->text.size};
    size_t at = 0;
    if (!words->count != !text.size) abort();
    for (size_t i = 0; i < words->count; i++) {
        const Bytes word = words_span(words, i, 1);
        if (word.data != text.data + at || !word.size || memchr(word.data, ' ', word.size)) abort();
        at += word.size + 1;
        if (at <= text.size && text.data[at - 1] != ' ') abort();
    }
    if (words->count && at != text.size + 1) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static TextWords words, again;
    static Shingler shingler;
    Buffer set = {0};
    ShingleHead head;
    words_set(&words, (Bytes){data, size});
    check(&words);
    words_set(&again, (Bytes){words.text.data, words.text.size});
    check(&again);
    if (again.count != words.count || again.text.size != words.text.size) abort();
    if (words.text.size && memcmp(again.text.data, words.text.data, words.text.size)) abort();
    shingler_set(&shingler, (Bytes){data, size}, &set);
    memcpy(&head, set.data, sizeof head);
    const size_t hashes = head.count * sizeof(uint64_t) + bitmap_filter_bytes(head.count);
    if (set.size != sizeof head + hashes + head.bytes || !head.count != !words.count) abort();
    shingler_hash_again(&shingler);
    if (shingler.words.count != words.count) abort();
    if (words.count && memcmp(shingler.words.starts, words.starts, words.count * sizeof *words.starts)) abort();
    buffer_close(&set);
    return 0;
}
