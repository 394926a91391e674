// Finds the characters of documents.
#include "shardtool/print/character_list.h"
#include "common/err.h"
#include "common/utf8.h"
#include "shardtool/support/option_rows.h"
#include <stdlib.h>
#include <unistd.h>

// Marks the characters of one part. `held` has the bytes of a character that the part before cut.
static int mark_part(uint8_t *seen, Bytes text, bool last, Buffer *held) {
    buffer_add(held, text.data, text.size);
    const uint8_t *at = held->data, *end = at + held->size;
    while (at < end) {
        uint32_t point;
        const unsigned length = utf8_decode(at, end, &point);
        if (point == UTF8_CUT && !last) break;
        if (point > UTF8_LAST) return fail(EX_DATA, "it is not UTF-8");
        seen[point] = 1;
        at += length;
    }
    held->size = (size_t)(end - at);
    memmove(held->data, at, held->size);
    return 0;
}

int character_list_print(Source *source) {
    uint8_t *seen = allocate_zeroed(UTF8_LAST + 1, 1), bytes[UTF8_BYTES_MAX];
    Buffer held = {0}, out = {0};
    Part part;
    int status;
    while ((status = source_next(source, &part)) > 0)
        if (mark_part(seen, part.text, part.last, &held) < 0) {
            status = source_fail_in(source, &part);
            break;
        }
    unsigned count = 0;
    for (uint32_t point = 0; status == 0 && point <= UTF8_LAST; point++)
        if (seen[point]) buffer_add(&out, bytes, utf8_encode(point, bytes)), count++;
    if (count > CHARACTERS_MAX)
        status = fail(EX_DATA, "the documents have %u characters, and a vocabulary at most %d", count, CHARACTERS_MAX);
    if (status == 0 && !out.size) status = fail_no_documents();
    if (status == 0) status = fd_write(STDOUT_FILENO, out.data, out.size, "the output");
    buffer_close(&held);
    buffer_close(&out);
    free(seen);
    return status;
}
