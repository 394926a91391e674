// Encodes documents in one thread and prints their ids.
#include "shardtool/print/id_output.h"
#include "common/file/file.h"
#include "common/id_array.h"
#include "shardtool/support/option_rows.h"
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 18 };

typedef struct {
    const IdOutputOptions *options;
    Encoder *encoder;
    Buffer ids, out;
    bool begun; // the line already has an id
    uint64_t tokens, bytes;
} IdOutput;

static void add_decimal(Buffer *out, unsigned id, bool begun) {
    char digits[8];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + id % 10);
    while (id /= 10);
    if (begun) digits[--at] = ' ';
    buffer_add(out, digits + at, sizeof digits - at);
}

static int flush(Buffer *out) {
    int status = fd_write(STDOUT_FILENO, out->data, out->size, "the output");
    out->size = 0;
    return status;
}

static int put_part(IdOutput *output, const Part *part) {
    const unsigned bytes = vocab_id_bytes(output->options->vocab);
    buffer_reserve(&output->ids, encoder_ids_max(part->text.size + encoder_held_bytes(output->encoder)) * bytes);
    const void *ids = output->ids.data;
    ssize_t count = encoder_encode_part(output->encoder, part->text, part->last, output->ids.data);
    if (count < 0) return -1;
    if (output->options->raw) buffer_add(&output->out, ids, (size_t)count * bytes);
    for (ssize_t i = 0; !output->options->raw && i < count; i++, output->begun = true)
        add_decimal(&output->out, id_at(ids, (size_t)i, bytes), output->begun);
    if (part->last && !output->options->raw) buffer_add(&output->out, "\n", 1), output->begun = false;
    output->tokens += (uint64_t)count + part->last, output->bytes += part->text.size;
    return 0;
}

static int put_documents(IdOutput *output, Source *source) {
    const uint64_t limit = output->options->max_tokens;
    Part part;
    int status;
    while ((status = source_next(source, &part)) > 0) {
        if (put_part(output, &part) < 0) return source_fail_in(source, &part);
        if (output->out.size >= FLUSH_BYTES && flush(&output->out) < 0) return -1;
        if (limit && part.last && output->tokens >= limit) return 0;
    }
    return status == 0 && !output->tokens ? fail_no_documents() : status;
}

int id_output_print(const IdOutputOptions *options, Source *source) {
    IdOutput output = {.options = options, .encoder = encoder_open(options->vocab, options->invalid)};
    encoder_set_max_word(output.encoder, options->max_word);
    int status = put_documents(&output, source);
    if (flush(&output.out) < 0) status = -1; // also the ids before a fault
    if (status == 0) log_replaced(encoder_replaced(output.encoder), output.bytes, "");
    encoder_close(output.encoder);
    buffer_close(&output.ids);
    buffer_close(&output.out);
    return status;
}
