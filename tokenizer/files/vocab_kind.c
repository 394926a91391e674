// Files that are named as vocabularies but are not, by their first bytes.
#include "tokenizer/files/vocab_kind.h"
#include "common/err.h"

static bool begins(Bytes file, const char *bytes, size_t size) {
    return file.size >= size && !memcmp(file.data, bytes, size);
}

// ModelProto of SentencePiece: field 1, a piece, which begins with its text and a float, its score.
static bool is_sentencepiece(Bytes file) {
    const uint8_t *at = file.data;
    return file.size > 4 && at[0] == 0x0A && at[1] < 128 && at[2] == 0x0A && file.size > 4u + at[3] &&
           at[4 + at[3]] == 0x15;
}

static bool is_safetensors(Bytes file) {
    return file.size > 9 && file.data[8] == '{' && !memcmp(file.data + 4, "\0\0\0", 4) && file.data[9] == '"';
}

static bool is_gguf(Bytes file) { return begins(file, "GGUF", 4); }
static bool is_zip(Bytes file) { return begins(file, "PK\3\4", 4); }
static bool is_merges(Bytes file) { return begins(file, "#version: ", 10); }
static bool is_pickle(Bytes file) { return file.size > 2 && file.data[0] == 0x80 && file.data[1] <= 5; }
static bool is_compressed(Bytes file) { return begins(file, "\x1F\x8B", 2) || begins(file, "\x28\xB5\x2F\xFD", 4); }

static const struct {
    bool (*is)(Bytes file);
    const char *what;
} kinds[] = {
    {is_sentencepiece, "a model of SentencePiece, which is not supported: only BPE on bytes is"},
    {is_gguf, "a GGUF: name the tokenizer.json of the model"},
    {is_safetensors, "a file of safetensors, the weights of a model: name its tokenizer.json"},
    {is_zip, "a zip archive, as torch.save writes models: name the tokenizer.json of the model"},
    {is_merges, "merges.txt alone, without the ids: name the directory that has it with vocab.json"},
    {is_pickle, "a pickle, as nanochat's tokenizer.pkl: write the tokens of its mergeable_ranks to a NAME.tiktoken"},
    {is_compressed, "compressed: decompress it first"},
};

int vocab_kind_check(Bytes file, const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].is(file)) return fail(EX_DATA, "'%s' is not a vocabulary: it is %s", name, kinds[i].what);
    return 0;
}
