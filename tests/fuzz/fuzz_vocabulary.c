// Reads any bytes as the file of a vocabulary, by the first byte as tokenizer.json, .tiktoken, or vocab.json with
// merges.txt after a NUL. What it accepts is written and read again: the same vocabulary.
#include "tests/fuzz/fuzz.h"
#include "tokenizer/files/vocab_table.h"

static const Vocab *open_pair(Bytes file) {
    const uint8_t *end = memchr(file.data, 0, file.size);
    const size_t json = end ? (size_t)(end - file.data) : file.size;
    const Bytes merges = {file.data + json + !!end, file.size - json - !!end};
    VocabTable *table = vocab_table_open();
    const Vocab *vocab = NULL;
    if (vocab_read_json_and_merges(table, (Bytes){file.data, json}, merges) == 0) vocab = vocab_table_take(table);
    vocab_table_close(table);
    return vocab;
}

static void check_same(const Vocab *vocab) {
    uint8_t fingerprint[32];
    Buffer file = {0};
    vocab_fingerprint(vocab, fingerprint);
    vocab_print_file(vocab, &file);
    const Vocab *again = vocab_open_bytes((Bytes){file.data, file.size}, VOCAB_FILE, NULL);
    if (!again || !vocab_has_fingerprint(again, fingerprint)) abort();
    vocab_close(again);
    buffer_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    const Bytes file = {data + 1, size - 1};
    const Vocab *vocab = data[0] % 3 == 0   ? vocab_open_bytes(file, VOCAB_FILE, NULL)
                         : data[0] % 3 == 1 ? vocab_open_bytes(file, "fuzz.tiktoken", &(VocabNames){.pattern = "gpt4"})
                                            : open_pair(file);
    if (!vocab && err_code() != EX_DATA) abort();
    if (vocab) check_same(vocab);
    vocab_close(vocab);
    err_clear();
    return 0;
}
