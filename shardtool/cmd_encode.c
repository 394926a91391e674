// encode: text to ids, as one line of decimals per file or as raw numbers.
#include "common/err.h"
#include "common/file/file.h"
#include "common/id_array.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 18 };

static bool raw;
static VocabularyOptions vocabulary;
static uint64_t max_word = ENCODER_MAX_WORD;
static InvalidUtf8 invalid_utf8;

static const Option options[] = {
    {OPT_FLAG, "raw", &raw, NULL,
     "write little-endian ids of 2 bytes, of more than 65,536 of 4, instead of lines of decimals"},
    ROW_INVALID_UTF8(&invalid_utf8),
    ROW_MAX_WORD(&max_word),
    VOCABULARY_ROWS(&vocabulary),
    ROW_END,
};

typedef struct {
    Encoder *encoder;
    unsigned id_bytes; // of an id
    uint8_t block[BLOCK_BYTES];
    Buffer ids, out;
    bool begun; // the line already has an id
    uint64_t bytes;
} Encoding;

static void add_decimal(Buffer *out, unsigned id, bool begun) {
    char digits[8];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + id % 10);
    while (id /= 10);
    if (begun) digits[--at] = ' ';
    buffer_add(out, digits + at, sizeof digits - at);
}

static int put_ids(Encoding *encoding, Bytes part, bool last) {
    const unsigned bytes = encoding->id_bytes;
    buffer_reserve(&encoding->ids, encoder_ids_max(part.size + encoder_held_bytes(encoding->encoder)) * bytes);
    const void *ids = encoding->ids.data;
    ssize_t count = encoder_encode_part(encoding->encoder, part, last, encoding->ids.data);
    if (count < 0) return -1;
    if (raw) return fd_write(STDOUT_FILENO, ids, (size_t)count * bytes, "the output");
    encoding->out.size = 0;
    for (ssize_t i = 0; i < count; i++, encoding->begun = true)
        add_decimal(&encoding->out, id_at(ids, (size_t)i, bytes), encoding->begun);
    if (last) buffer_add(&encoding->out, "\n", 1);
    return fd_write(STDOUT_FILENO, encoding->out.data, encoding->out.size, "the output");
}

// The whole file is one document; its content does not matter.
static int encode_file(Encoding *encoding, int fd, const char *name) {
    encoding->begun = false;
    for (;;) {
        ssize_t got = fd_read(fd, encoding->block, sizeof encoding->block, name);
        if (got < 0) return -1;
        encoding->bytes += (uint64_t)got;
        bool last = got < (ssize_t)sizeof encoding->block;
        if (put_ids(encoding, (Bytes){encoding->block, (size_t)got}, last) < 0) return fail_in("'%s'", name);
        if (last) return 0;
    }
}

static int encode_path(Encoding *encoding, const char *path) {
    if (!strcmp(path, "-")) return encode_file(encoding, STDIN_FILENO, "standard input");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    int status = encode_file(encoding, fd, path);
    close(fd);
    return status;
}

static int run(int count, char **arguments) {
    static Encoding encoding;
    if (raw && cli_refuse_terminal() != 0) return -1;
    const Vocab *vocab = vocabulary_options_open(&vocabulary);
    if (!vocab) return -1;
    encoding.encoder = encoder_open(vocab, invalid_utf8);
    encoding.id_bytes = vocab_id_bytes(vocab);
    encoder_set_max_word(encoding.encoder, max_word);
    int status = count ? 0 : encode_path(&encoding, "-");
    for (int i = 0; status == 0 && i < count; i++) status = encode_path(&encoding, arguments[i]);
    if (status == 0) log_replaced(encoder_replaced(encoding.encoder), encoding.bytes);
    encoder_close(encoding.encoder);
    buffer_close(&encoding.ids);
    buffer_close(&encoding.out);
    vocab_close(vocab);
    return status;
}

const Command shardtool_encode = {"encode", "[FILE...]", "convert text to ids, each file as one document",
                                  options,  run,         NULL};
