// decode: ids to text. The ids are decimal or raw (`trainer sample | shardtool decode`), or in a shard or dataset, of
// which a document or a range can be chosen.
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "common/json_write.h"
#include "common/log.h"
#include "dataset/document_reader.h"
#include "remote/url_map.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/id_range.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

static bool raw, json;
static int split;
static const char *document, *range;
static VocabularyOptions vocabulary;

static const Option options[] = {
    {OPT_FLAG, "raw", &raw, NULL, "read little-endian ids of 2 bytes, of more than 65,536 of 4, instead of decimals"},
    {OPT_STRING, "doc", &document, "N", "only document N of a shard or dataset, from 0, without its end-of-text"},
    {OPT_FLAG, "json", &json, NULL, "print each document of a shard or dataset as a JSON line, as text does"},
    {OPT_STRING, "range", &range, "A:B", "only tokens A to B-1 of the shard, dataset or document"},
    ROW_SPLIT(&split),
    VOCABULARY_ROWS(&vocabulary),
    ROW_END,
};

typedef struct {
    const Vocab *vocab;
    uint8_t block[BLOCK_BYTES];
    size_t block_bytes;
    Buffer out;
    uint64_t offset; // of the block in the stream
    uint32_t id;     // the decimal number being read
    unsigned digits; // digits read so far; with --raw: bytes of the id read so far
    JsonCarry carry; // with --json; `text_bytes` counts the text
    uint64_t text_bytes;
    TokenReader *tokens; // of the shard or dataset being decoded
} TextDecoding;

static int put_id(TextDecoding *decoding, uint32_t id, uint64_t offset) {
    uint32_t one = 0;
    id_put(&one, 0, vocab_id_bytes(decoding->vocab), id);
    decoding->digits = 0, decoding->id = 0;
    const unsigned size = vocab_size(decoding->vocab);
    if (id >= size) return fail(EX_DATA, "offset %" PRIu64 ": id %u is not below %u", offset, id, size);
    return vocab_decode(decoding->vocab, &one, 1, &decoding->out);
}

static int take_decimal(TextDecoding *decoding, uint8_t c, uint64_t offset) {
    if (isspace(c)) return decoding->digits ? put_id(decoding, decoding->id, offset) : 0;
    if (!isdigit(c) || decoding->digits == 9)
        return fail(EX_DATA, "offset %" PRIu64 ": expected an id (decimal, or use --raw)", offset);
    decoding->id = decoding->id * 10 + (c - '0');
    decoding->digits++;
    return 0;
}

static int take_raw(TextDecoding *decoding, uint8_t c, uint64_t offset) {
    decoding->id |= (uint32_t)c << 8 * decoding->digits++;
    const unsigned bytes = vocab_id_bytes(decoding->vocab);
    return decoding->digits == bytes ? put_id(decoding, decoding->id, offset + 1 - bytes) : 0;
}

// Reads the bytes that a pipe has delivered so far. The bytes of a shard's opening are read together.
static ssize_t read_block(TextDecoding *decoding, int fd) {
    ssize_t got;
    do got = read(fd, decoding->block, sizeof decoding->block);
    while (got < 0 && errno == EINTR);
    if (got < 0) return fail_errno("cannot read");
    size_t opening = sizeof SHARD_OPENING - 1;
    if (decoding->offset == 0 && got > 0 && (size_t)got < opening && decoding->block[0] == SHARD_OPENING[0]) {
        ssize_t more = fd_read(fd, decoding->block + got, opening - (size_t)got, "the input");
        got = more < 0 ? -1 : got + more;
    }
    decoding->block_bytes = got < 0 ? 0 : (size_t)got;
    return got;
}

// Stops at the first block with *is_shard set when the stream is a shard.
static int decode_stream(TextDecoding *decoding, int fd, bool *is_shard) {
    decoding->offset = 0, decoding->digits = 0, decoding->id = 0;
    for (;;) {
        ssize_t got = read_block(decoding, fd);
        if (got < 0) return -1;
        *is_shard = !raw && decoding->offset == 0 && shard_begins((Bytes){decoding->block, decoding->block_bytes});
        if (*is_shard) return 0;
        if (document || range || json) return fail(EX_USAGE, "--doc, --range and --json need a shard or dataset");
        decoding->out.size = 0;
        int status = 0;
        for (ssize_t i = 0; status == 0 && i < got; i++) {
            uint64_t offset = decoding->offset + (uint64_t)i;
            status = raw ? take_raw(decoding, decoding->block[i], offset)
                         : take_decimal(decoding, decoding->block[i], offset);
        }
        decoding->offset += (uint64_t)got;
        if (status == 0 && got == 0 && decoding->digits) {
            if (raw)
                status = fail(EX_DATA, "%s: the last id is incomplete",
                              vocab_id_bytes(decoding->vocab) == 2 ? "odd number of bytes" : "not 4 bytes for each id");
            else
                status = put_id(decoding, decoding->id, decoding->offset);
        }
        // print the text before a bad id too: it shows where the id is
        if (fd_write(STDOUT_FILENO, decoding->out.data, decoding->out.size, "the output") < 0 || status < 0) return -1;
        if (got == 0) return 0;
    }
}

// Finds document --doc.
static int find_document(TokenReader *tokens, Document *found) {
    char *stop;
    errno = 0;
    uint64_t number = strtoull(document, &stop, 10);
    if (!isdigit((unsigned char)*document) || *stop || errno)
        return fail(EX_USAGE, "--doc '%s' is not a document number", document);
    DocumentReader reader = {0};
    int status;
    while ((status = document_reader_next(&reader, tokens, found)) > 0 && found->number < number) {
    }
    if (status == 0)
        status = fail(EX_USAGE, "--doc %" PRIu64 " is not below the %" PRIu64 " documents of the input", number,
                      reader.document);
    document_reader_close(&reader);
    return status < 0 ? -1 : 0;
}

static int put_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    (void)bytes; // check_vocabulary compared the vocabularies
    TextDecoding *decoding = context;
    decoding->out.size = 0;
    if (vocab_decode(decoding->vocab, ids, count, &decoding->out) < 0) return -1;
    return fd_write(STDOUT_FILENO, decoding->out.data, decoding->out.size, "the output");
}

static int put_json_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    (void)bytes;
    TextDecoding *decoding = context;
    Buffer text = {0};
    int status = vocab_decode(decoding->vocab, ids, count, &text);
    decoding->text_bytes += text.size;
    json_add_text(&decoding->out, (Bytes){text.data, text.size}, false, &decoding->carry);
    buffer_close(&text);
    return status;
}

static int flush(TextDecoding *decoding, size_t least) {
    if (decoding->out.size < least) return 0;
    int status = fd_write(STDOUT_FILENO, decoding->out.data, decoding->out.size, "the output");
    decoding->out.size = 0;
    return status;
}

// Adds a document as a line of JSON. A long one is printed in steps of BLOCK_BYTES ids.
static int put_document(void *context, const Document *found) {
    TextDecoding *decoding = context;
    const uint64_t end = found->first + found->tokens - found->has_end;
    buffer_print(&decoding->out, "{\"text\": \"");
    for (uint64_t at = found->first; at < end;) {
        const uint64_t stop = end - at > BLOCK_BYTES ? at + BLOCK_BYTES : end;
        if (token_reader_visit(decoding->tokens, at, stop, put_json_ids, decoding) < 0) return -1;
        if (flush(decoding, BLOCK_BYTES) < 0) return -1;
        at = stop;
    }
    json_add_text(&decoding->out, (Bytes){0}, true, &decoding->carry);
    buffer_print(&decoding->out, "\"}\n");
    return flush(decoding, BLOCK_BYTES);
}

static int decode_json(TextDecoding *decoding, const Document *only) {
    decoding->out.size = 0;
    int status = only ? put_document(decoding, only) : document_reader_visit(decoding->tokens, put_document, decoding);
    return status < 0 || flush(decoding, 1) < 0 ? -1 : 0;
}

static int decode_tokens(TextDecoding *decoding, TokenReader *tokens) {
    Document one = {.tokens = tokens->tokens};
    decoding->tokens = tokens;
    if (json && !document && !range) return decode_json(decoding, NULL);
    if (document && find_document(tokens, &one) < 0) return -1;
    uint64_t first = 0, end = one.tokens - one.has_end;
    if (range && id_range_parse(range, end, &first, &end) < 0) return -1;
    if (json) return decode_json(decoding, &(Document){.first = one.first + first, .tokens = end - first});
    return token_reader_visit(tokens, one.first + first, one.first + end, put_ids, decoding);
}

// The vocabulary whose file the dataset has, unless another vocabulary was named.
static int take_vocabulary(TextDecoding *decoding, const char *path) {
    char kept[PATH_MAX_BYTES];
    if (vocabulary_is_named(&vocabulary) || !dataset_is(path) || !dataset_vocabulary_in(kept, path)) return 0;
    vocab_close(decoding->vocab);
    decoding->vocab = vocabulary_path_open(kept, NULL);
    return decoding->vocab ? 0 : -1;
}

static int check_vocabulary(const TextDecoding *decoding, TokenReader *tokens, const char *path) {
    const ShardFile *shard = tokens->tokens ? token_reader_shard(tokens, 0) : NULL;
    if (!shard) return tokens->tokens ? -1 : 0;
    if (vocab_has_fingerprint(decoding->vocab, shard->vocab_fp) && vocab_size(decoding->vocab) == shard->vocab_size)
        return 0;
    const bool kept = !vocabulary_is_named(&vocabulary) && !vocab_is_gpt2(decoding->vocab);
    return fail(kept ? EX_DATA : EX_PROTOCOL,
                "'%s' has another vocabulary, of %u ids%s%s: name its file (--characters, --vocabulary)", path,
                shard->vocab_size, kept ? ", than its " : "", kept ? vocab_file_name(decoding->vocab) : "");
}

static int decode_shard(TextDecoding *decoding, const char *path) {
    TokenReader tokens;
    if (take_vocabulary(decoding, path) < 0 || token_reader_open(&tokens, path, split) < 0) return -1;
    const uint64_t others = split == SPLIT_TRAIN ? tokens.dataset.documents[SPLIT_VAL] : 0;
    if (others && !document && !range)
        log_line("the training split of '%s': --split val has %" PRIu64 " more documents", path, others);
    int status = check_vocabulary(decoding, &tokens, path);
    if (status == 0) status = decode_tokens(decoding, &tokens);
    token_reader_close(&tokens);
    return status;
}

// Ids, or a shard: no decimal begins as a shard does.
static int decode_path(TextDecoding *decoding, const char *path) {
    if (dataset_is(path) || url_map_takes(path)) return decode_shard(decoding, path);
    bool is_stdin = !strcmp(path, "-");
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    bool is_shard = false;
    int status = decode_stream(decoding, fd, &is_shard);
    if (is_shard && is_stdin) status = stdin_spool((Bytes){decoding->block, decoding->block_bytes});
    if (!is_stdin) close(fd);
    if (status < 0) return is_stdin ? fail_in("standard input") : fail_in("'%s'", path);
    return is_shard ? decode_shard(decoding, path) : 0;
}

static int run(int count, char **arguments) {
    static TextDecoding decoding;
    decoding.vocab = vocabulary_options_open(&vocabulary);
    if (!decoding.vocab) return -1;
    int status = count ? 0 : decode_path(&decoding, "-");
    for (int i = 0; status == 0 && i < count; i++) status = decode_path(&decoding, arguments[i]);
    if (status == 0) log_replaced(decoding.carry.replaced, decoding.text_bytes);
    buffer_close(&decoding.out);
    vocab_close(decoding.vocab);
    return status;
}

const Command shardtool_decode = {"decode", "[PATH...]", "convert ids, shards or datasets to text", options, run, NULL};
