// Any bytes as a file of another trainer: the model opens with every number readable, or it is bad data. The
// checksums of a zip archive are corrected first.
#include "tests/fuzz/fuzz.h"
#include "trainer/import/foreign_model.h"
#include <zlib.h>

enum { ENTRY_MAGIC = 0x02014b50, ENTRY_BYTES = 46, LOCAL_BYTES = 30 };

// A wrong checksum would keep the fuzzer out of the code behind it.
static void correct(uint8_t *file, size_t size) {
    for (size_t at = 0; at + ENTRY_BYTES <= size; at++) {
        if (get_u32(file + at) != ENTRY_MAGIC) continue;
        const size_t bytes = get_u32(file + at + 24), local = get_u32(file + at + 42);
        if (local + LOCAL_BYTES > size) continue;
        const size_t begin = local + LOCAL_BYTES + get_u16(file + local + 26) + get_u16(file + local + 28);
        if (begin > size || bytes > size - begin || begin + bytes > at) continue;
        put_u32(file + at + 16, (uint32_t)crc32_z(0, file + begin, bytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + !size);
    memcpy(copy, data, size);
    correct(copy, size);
    ForeignModel foreign;
    if (foreign_open_bytes(&foreign, (Bytes){copy, size}, true) == 0) {
        if (!foreign.format || foreign.model.parameters > size) abort();
        foreign_close(&foreign);
    } else if (err_code() != EX_DATA)
        abort();
    err_clear();
    free(copy);
    return 0;
}
