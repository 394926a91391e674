// text: prints the documents of any input, one {"text": ...} per line, or raw and NUL-terminated.
#include "common/err.h"
#include "common/json_write.h"
#include "shardtool/support/option_rows.h"
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 18 };

static bool raw;
static uint64_t threads;

static const Option options[] = {
    {OPT_FLAG, "0,raw", &raw, NULL, "print raw bytes and a NUL after each document"},
    ROW_JOBS(&threads),
    INPUT_ROWS,
    ROW_END,
};

static int flush(Buffer *out) {
    int status = fd_write(STDOUT_FILENO, out->data, out->size, "the output");
    out->size = 0;
    return status;
}

static int print_documents(Source *source) {
    Buffer out = {0};
    JsonCarry carry = {.size = 0};
    Part part;
    int status;
    uint64_t documents = 0, bytes = 0;
    while ((status = source_next(source, &part)) > 0) {
        if (raw) {
            buffer_add(&out, part.text.data, part.text.size);
            if (part.last) buffer_add(&out, "", 1);
        } else {
            static const char begin[] = "{\"text\": \"", end[] = "\"}\n";
            if (part.first) buffer_add(&out, begin, sizeof begin - 1);
            json_add_text(&out, part.text, part.last, &carry);
            if (part.last) buffer_add(&out, end, sizeof end - 1);
        }
        documents += part.last, bytes += part.text.size;
        if (out.size >= FLUSH_BYTES && (status = flush(&out)) < 0) break;
    }
    if (status == 0) status = flush(&out);
    if (status == 0) log_replaced(carry.replaced, bytes);
    buffer_close(&out);
    return status == 0 && !documents ? fail_no_documents() : status;
}

static int run(int count, char **arguments) {
    return input_set_threads(threads) < 0 ? -1 : input_read(count, arguments, print_documents);
}

const Command shardtool_text = {"text", "[INPUT...]", "print documents without tokenizing", options, run, NULL};
