// decode: ids, decimal or raw u16, to text. `trainer sample | shardtool decode`.
#include "common/err.h"
#include "common/file.h"
#include "shardtool/cmd_options.h"
#include "tokenizer/tokenizer.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

static bool raw;
static const char *merges;

static const Option options[] = {
    {OPT_FLAG, "raw", &raw, NULL, "read little-endian u16 instead of decimals"},
    ROW_MERGES(&merges),
    ROW_END,
};

typedef struct {
    const Vocab *vocab;
    uint8_t block[BLOCK_BYTES];
    Buffer out;
    uint64_t offset; // of the block in the stream
    uint32_t id;     // the decimal number being read
    unsigned digits; // digits read so far; with --raw: bytes of the id read so far
} Decoding;

static int put_id(Decoding *decoding, uint32_t id, uint64_t offset) {
    uint16_t small = (uint16_t)id;
    decoding->digits = 0, decoding->id = 0;
    if (id >= TOKEN_COUNT) return fail(EX_DATA, "offset %" PRIu64 ": id %u is not below %d", offset, id, TOKEN_COUNT);
    return vocab_decode(decoding->vocab, &small, 1, &decoding->out);
}

static int take_decimal(Decoding *decoding, uint8_t c, uint64_t offset) {
    if (isspace(c)) return decoding->digits ? put_id(decoding, decoding->id, offset) : 0;
    if (!isdigit(c) || decoding->digits == 9)
        return fail(EX_DATA, "offset %" PRIu64 ": expected an id (decimal, or use --raw)", offset);
    decoding->id = decoding->id * 10 + (c - '0');
    decoding->digits++;
    return 0;
}

static int take_raw(Decoding *decoding, uint8_t c, uint64_t offset) {
    decoding->id |= (uint32_t)c << 8 * decoding->digits++;
    return decoding->digits == 2 ? put_id(decoding, decoding->id, offset - 1) : 0;
}

static int decode_stream(Decoding *decoding, int fd) {
    decoding->offset = 0, decoding->digits = 0, decoding->id = 0;
    for (;;) {
        ssize_t got =
            read(fd, decoding->block, sizeof decoding->block); // not fd_read: print what a pipe has delivered so far
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("cannot read");
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
                status = fail(EX_DATA, "odd number of bytes: the last id is incomplete");
            else
                status = put_id(decoding, decoding->id, decoding->offset);
        }
        // print the text before a bad id too: it shows where the id is
        if (fd_write(STDOUT_FILENO, decoding->out.data, decoding->out.size, "the output") < 0 || status < 0) return -1;
        if (got == 0) return 0;
    }
}

static int decode_path(Decoding *decoding, const char *path) {
    if (!strcmp(path, "-")) return decode_stream(decoding, STDIN_FILENO) < 0 ? fail_in("standard input") : 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    int status = decode_stream(decoding, fd);
    close(fd);
    return status < 0 ? fail_in("'%s'", path) : 0;
}

static int run(int count, char **arguments) {
    static Decoding decoding;
    decoding.vocab = merges ? vocab_open_file(merges) : vocab_open();
    if (!decoding.vocab) return -1;
    int status = count ? 0 : decode_path(&decoding, "-");
    for (int i = 0; status == 0 && i < count; i++) status = decode_path(&decoding, arguments[i]);
    buffer_close(&decoding.out);
    vocab_close(decoding.vocab);
    return status;
}

const Command shardtool_decode = {"decode", "[FILE...]", "convert ids to text", options, run, NULL};
