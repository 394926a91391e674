// Times the pretokenizer alone over a file of documents (u32 size, bytes, ...): bench_pieces DOCUMENTS PATTERN
// [STARTS].
//
// Prints the best of some passes in MB/s of processor time. STARTS is a file for the pieces: for each document the
// number of pieces and their starts, as u32. Documents that are not UTF-8 are only for MILLRACE_ISA=portable.
#include "common/err.h"
#include "common/file/file.h"
#include "tokenizer/merge/pretokenize.h"
#include <stdio.h>
#include <time.h>

enum { PASSES = 5 };

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void cut_document(Bytes text, Pattern pattern, Isa isa, Buffer *out) {
    uint32_t starts[PRETOKENIZE_STARTS], total = 0;
    const size_t header = out->size;
    Pretokenizer pretokenizer;
    pretokenizer_open(&pretokenizer, text, pattern, isa);
    buffer_add(out, &total, sizeof total);
    for (size_t count; (count = pretokenizer_next(&pretokenizer, starts)); total += (uint32_t)count)
        buffer_add(out, starts, count * sizeof *starts);
    memcpy(out->data + header, &total, sizeof total);
}

int main(int count, char **arguments) {
    Pattern pattern;
    Bytes all;
    if (count < 3 || !pattern_find(arguments[2], &pattern))
        die(EX_USAGE, "usage: bench_pieces DOCUMENTS PATTERN [STARTS]");
    if (file_map(&all, arguments[1]) < 0) die(err_code(), "%s", err_text());
    double best = 0;
    Buffer out = {0};
    for (int pass = 0; pass < PASSES; pass++) {
        const double start = now_s();
        out.size = 0;
        for (Cursor cursor = cursor_init(all); cursor.at < cursor.end;) {
            uint32_t size;
            const uint8_t *text = cursor_u32(&cursor, &size) ? cursor_take(&cursor, size) : NULL;
            if (!text) die(EX_DATA, "the documents end early");
            cut_document((Bytes){text, size}, pattern, cpu_isa(), &out);
        }
        const double rate = (double)all.size / (now_s() - start) / 1e6;
        if (rate > best) best = rate;
    }
    printf("%s: %.0f MB/s\n", pattern_name(pattern), best);
    if (count > 3 && file_write(arguments[3], (Bytes){out.data, out.size}) < 0) die(err_code(), "%s", err_text());
    buffer_close(&out);
    file_unmap(&all);
}
