// decode: ids to text. The ids are decimal or raw (`trainer sample | shardtool decode`), or in a shard or dataset, of
// which a document or ranges can be chosen. With --json or -0 it prints documents, of shards, datasets or any inputs.
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "common/log.h"
#include "dataset/document_reader.h"
#include "dataset/provenance_reader.h"
#include "remote/url_map.h"
#include "shardtool/print/document_printer.h"
#include "shardtool/print/id_range.h"
#include "shardtool/print/random_documents.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/path_visit.h"
#include "shardtool/support/vocabulary_options.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

static bool raw, json, null;
static int split;
static uint64_t threads, random_count, seed;
static const char *document;
static VocabularyOptions vocabulary;

static const Option options[] = {
    {OPT_FLAG, "raw", &raw, NULL, "read little-endian ids of 2 bytes, of more than 65,536 of 4, instead of decimals"},
    {OPT_FLAG, "json", &json, NULL, "print each document of shards, datasets or inputs as a JSON line"},
    {OPT_FLAG, "0,null", &null, NULL, "print each document of shards, datasets or inputs as it is, and a NUL"},
    {OPT_STRING, "doc", &document, "N", "only document N of a shard or dataset, from 0, without its end-of-text"},
    {OPT_SIZE, "random", &random_count, "N", "N whole documents of a shard or dataset, chosen at random"},
    {OPT_SIZE, "seed", &seed, "SEED", "seed of this choice"},
    ROW_SPLIT(&split),
    VOCABULARY_ROWS(&vocabulary),
    ROW_JOBS(&threads),
    INPUT_ROWS,
    ROW_END,
};

enum { OF_IDS, OF_TOKENS, OF_INPUTS };
static const char *const modes[] = {"on ids", "on a shard or dataset", "on inputs"};
static const OptionModes option_modes[] = {
    {"raw", 1 << OF_IDS},
    {"doc random seed split", 1 << OF_TOKENS},
    {"vocabulary end-of-text pattern", 1 << OF_IDS | 1 << OF_TOKENS},
    {INPUT_NAMES, 1 << OF_INPUTS},
    {NULL, 0},
};
static const char *const choices[] = {"without documents to choose", "with --random 1 or more"};
static const OptionModes random_modes[] = {{"random seed", 1 << 1}, {NULL, 0}};

typedef struct {
    const Vocab *vocab;
    uint8_t block[BLOCK_BYTES];
    uint32_t ids[BLOCK_BYTES]; // of vocab_id_bytes each
    size_t block_bytes;
    Buffer out;
    uint64_t offset; // of the block in the stream
    uint32_t id;     // the decimal number being read
    unsigned digits; // digits read so far; with --raw: bytes of the id read so far
    DocumentPrinter printer;
    TokenReader *tokens; // of the shard or dataset being decoded
    ProvenanceReader rows;
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
        return fail(EX_DATA,
                    "offset %" PRIu64 ": expected an id (decimal, or use --raw; --json prints the documents of inputs)",
                    offset);
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
static int decode_stream(TextDecoding *decoding, int fd, bool has_ranges, bool *is_shard) {
    decoding->offset = 0, decoding->digits = 0, decoding->id = 0;
    for (;;) {
        ssize_t got = read_block(decoding, fd);
        if (got < 0) return -1;
        *is_shard = !raw && decoding->offset == 0 && shard_begins((Bytes){decoding->block, decoding->block_bytes});
        if (*is_shard) return 0;
        if (has_ranges) return fail(EX_USAGE, "ranges need a shard or dataset");
        if (cli_check_mode(option_modes, modes, OF_IDS) < 0) return -1;
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

static int put_part(TextDecoding *decoding, const Document *found, uint64_t at, uint64_t stop, uint64_t end) {
    decoding->out.size = 0;
    void *ids = decoding->ids;
    if (token_reader_get(decoding->tokens, at, (size_t)(stop - at), ids) < 0) return -1;
    if (vocab_decode(decoding->vocab, ids, (size_t)(stop - at), &decoding->out) < 0) return -1;
    const Bytes text = {decoding->out.data, decoding->out.size};
    return document_print(&decoding->printer, text, at == found->first, stop == end);
}

// A long document is printed in steps of BLOCK_BYTES ids.
static int put_text(TextDecoding *decoding, const Document *found) {
    const uint64_t end = found->first + found->tokens - found->has_end;
    for (uint64_t at = found->first, stop;; at = stop) {
        stop = end - at > BLOCK_BYTES ? at + BLOCK_BYTES : end;
        if (put_part(decoding, found, at, stop, end) < 0) return -1;
        if (stop == end) return 0;
    }
}

static int find_row(TextDecoding *decoding, const Document *found) {
    return json ? provenance_at(&decoding->rows, found->number, &decoding->printer.row) : 0;
}

static int put_document(void *context, const Document *found) {
    return find_row(context, found) < 0 ? -1 : put_text(context, found);
}

static int put_range(TextDecoding *decoding, uint64_t first, uint64_t end) {
    if (json || null) return put_text(decoding, &(Document){.first = first, .tokens = end - first});
    return token_reader_visit(decoding->tokens, first, end, put_ids, decoding);
}

// Under a heading each, or with the number of each in its line of JSON.
static int decode_random(TextDecoding *decoding) {
    RandomDocuments chosen;
    int status = random_documents_choose(&chosen, decoding->tokens, random_count, seed);
    if (status == 0 && chosen.cut)
        log_line("'%s': left out %" PRIu64 " document%s that an end of this shard cuts", decoding->tokens->path,
                 chosen.cut, PLURAL(chosen.cut));
    for (uint64_t i = 0; status == 0 && i < chosen.count; i++) {
        const Document *found = &chosen.documents[i];
        decoding->printer.number = found->number;
        Buffer heading = {0};
        buffer_print(&heading, "%s==> document %" PRIu64 " of %" PRIu64 ", %" PRIu64 " tokens <==\n", i ? "\n\n" : "",
                     found->number, chosen.total, found->tokens);
        if (!json && !null) status = fd_write(STDOUT_FILENO, heading.data, heading.size, "the output");
        if (status == 0) status = find_row(decoding, found);
        if (status == 0) status = put_range(decoding, found->first, found->first + found->tokens - found->has_end);
        buffer_close(&heading);
    }
    if (status == 0 && chosen.count && !json && !null) status = fd_write(STDOUT_FILENO, "\n", 1, "the output");
    free(chosen.documents);
    return status;
}

// All of the shard, split or document, or `count` ranges of it.
static int decode_tokens(TextDecoding *decoding, int count, char **ranges) {
    TokenReader *tokens = decoding->tokens;
    Document one = {.tokens = tokens->tokens};
    if (random_count && (document || count))
        return fail(EX_USAGE, "--random chooses documents: not with %s", document ? "--doc" : "ranges");
    if (random_count) return decode_random(decoding);
    if ((json || null) && !document && !count) return document_reader_visit(tokens, put_document, decoding);
    if (document && find_document(tokens, &one) < 0) return -1;
    if (document && !count && find_row(decoding, &one) < 0) return -1;
    uint64_t first = 0, end = one.tokens - one.has_end;
    int status = count ? 0 : put_range(decoding, one.first, one.first + end);
    for (int i = 0; status == 0 && i < count; i++) {
        status = id_range_parse(ranges[i], one.tokens - one.has_end, &first, &end);
        if (status == 0) status = put_range(decoding, one.first + first, one.first + end);
    }
    return status;
}

// The vocabulary whose file the dataset has, unless another vocabulary was named.
static int take_vocabulary(TextDecoding *decoding, const char *path) {
    char kept[PATH_MAX_BYTES];
    if (vocabulary.vocabulary || !dataset_is(path) || !dataset_vocabulary_in(kept, path)) return 0;
    vocab_close(decoding->vocab);
    decoding->vocab = vocabulary_path_open(kept, NULL);
    return decoding->vocab ? 0 : -1;
}

static int check_vocabulary(const TextDecoding *decoding, TokenReader *tokens, const char *path) {
    const ShardFile *shard = tokens->tokens ? token_reader_shard(tokens, 0) : NULL;
    if (!shard) return tokens->tokens ? -1 : 0;
    if (vocab_has_fingerprint(decoding->vocab, shard->vocab_fp) && vocab_size(decoding->vocab) == shard->vocab_size)
        return 0;
    const bool kept = !vocabulary.vocabulary && !vocab_is_gpt2(decoding->vocab);
    return fail(kept ? EX_DATA : EX_PROTOCOL,
                "'%s' has another vocabulary, of %u ids%s%s: name its file (--vocabulary)", path, shard->vocab_size,
                kept ? ", than its " : "", kept ? vocab_file_name(decoding->vocab) : "");
}

static int decode_shard(TextDecoding *decoding, int count, char **arguments) {
    const char *path = arguments[0];
    TokenReader tokens;
    if (cli_check_mode(option_modes, modes, OF_TOKENS) < 0 ||
        cli_check_mode(random_modes, choices, random_count > 0) < 0)
        return -1;
    if (take_vocabulary(decoding, path) < 0 || token_reader_open(&tokens, path, split) < 0) return -1;
    const uint64_t others = split == SPLIT_TRAIN ? tokens.dataset.documents[SPLIT_VAL] : 0;
    if (others && (!tokens.tokens || (!document && !random_count && count == 1)))
        log_line("the training split of '%s'%s: --split val has %" PRIu64 " %sdocument%s", path,
                 tokens.tokens ? "" : " is empty", others, tokens.tokens ? "more " : "", PLURAL(others));
    decoding->tokens = &tokens;
    decoding->rows = (ProvenanceReader){.dataset = &tokens.dataset, .split = split}, decoding->printer.row = (Bytes){0};
    int status = check_vocabulary(decoding, &tokens, path);
    if (status == 0) status = decode_tokens(decoding, count - 1, arguments + 1);
    provenance_reader_close(&decoding->rows);
    token_reader_close(&tokens);
    return status;
}

static bool is_folder(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

// Ids, or a shard: no decimal begins as a shard does. `count` arguments: a PATH and its ranges.
static int decode_path(TextDecoding *decoding, int count, char **arguments) {
    const char *path = arguments[0];
    if (json || null || dataset_is(path) || url_map_takes(path)) return decode_shard(decoding, count, arguments);
    bool is_stdin = !strcmp(path, "-");
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    if (is_folder(fd)) {
        close(fd);
        return fail(EX_USAGE, "'%s' is a folder, and no dataset: --json prints the documents in it", path);
    }
    bool is_shard = false;
    int status = decode_stream(decoding, fd, count > 1, &is_shard);
    if (is_shard && is_stdin) status = stdin_spool((Bytes){decoding->block, decoding->block_bytes});
    if (!is_stdin) close(fd);
    if (status < 0) return is_stdin ? fail_in("standard input") : fail_in("'%s'", path);
    return is_shard ? decode_shard(decoding, count, arguments) : 0;
}

static int decode_paths(int count, char **arguments) {
    static TextDecoding decoding;
    decoding.printer.raw = null, decoding.printer.numbered = random_count;
    decoding.vocab = vocabulary_options_open(&vocabulary);
    int status = decoding.vocab ? 0 : -1;
    for (int i = 0, group; status == 0 && i < count; i += group) {
        group = id_range_group(count - i, arguments + i);
        decoding.printer.dataset = group < count ? arguments[i] : NULL;
        status = group < 0 ? -1 : decode_path(&decoding, group, arguments + i);
    }
    status = document_printer_finish(&decoding.printer, status);
    buffer_close(&decoding.out);
    vocab_close(decoding.vocab);
    return status;
}

static int print_inputs(Source *source) {
    DocumentPrinter printer = {.raw = null};
    Part part;
    int status;
    while ((status = source_next(source, &part)) > 0)
        if ((status = document_print(&printer, part.text, part.first, part.last)) < 0) break;
    status = document_printer_finish(&printer, status);
    return status == 0 && !printer.documents ? fail_no_documents() : status;
}

// Documents of shards and datasets, or of inputs: a PATH that is neither a dataset nor begins as a shard.
static int print_documents(int count, char **arguments) {
    static char dash[] = "-", *standard_input[] = {dash};
    const bool is_default = !count && !input_filter.files_from;
    char **paths = is_default ? standard_input : arguments;
    const int paths_count = is_default ? 1 : count;
    const char *tokens = NULL, *input = input_filter.files_from, *range = NULL;
    for (int i = 0; i < paths_count; i++) {
        const int is_tokens = id_range_is(paths[i]) ? 2 : path_is_tokens(paths[i], &source_options.head);
        if (is_tokens < 0) return -1;
        *(is_tokens == 2 ? &range : is_tokens ? &tokens : &input) = paths[i];
    }
    if (tokens && input)
        return fail(EX_USAGE, "'%s' holds ids and '%s' is an input: decode one after the other", tokens, input);
    if (tokens) return decode_paths(paths_count, paths);
    if (range) return fail(EX_USAGE, "ranges need a shard or dataset");
    if (cli_check_mode(option_modes, modes, OF_INPUTS) < 0) return -1;
    return input_set_threads(threads) < 0 ? -1 : input_read(count, arguments, print_inputs);
}

static int run(int count, char **arguments) {
    static char dash[] = "-", *standard_input[] = {dash};
    if (json && null) return fail(EX_USAGE, "--json and --null exclude each other");
    if (json || null) return print_documents(count, arguments);
    return count ? decode_paths(count, arguments) : decode_paths(1, standard_input);
}

const Command shardtool_decode = {
    "decode", "[PATH [A:B]...]...", "convert ids to text, or print documents", options, run, NULL};
