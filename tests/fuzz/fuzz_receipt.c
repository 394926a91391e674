// Any bytes as a receipt: it is read or refused with 65, and its ends are in order. Texts that begin with the byte 1
// receive the root that they should have.
#include "common/hash.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/audit/receipt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Buffer text = {0};
    Receipt receipt;
    uint8_t root[32];
    char digits[65];
    const bool rooted = size && data[0] == 1;
    buffer_add(&text, data + rooted, size - rooted);
    sha256(text.data, text.size, root);
    hex_encode(digits, root, 32);
    if (rooted) buffer_print(&text, "{\"root\": \"%s\"}\n", digits);
    if (receipt_parse(&receipt, (Bytes){text.data, text.size}) == 0) {
        if (!receipt.segments || receipt.segments > SEGMENTS_MAX) abort();
        for (unsigned i = 0; i < receipt.segments; i++)
            if (receipt.ends[i].step <= (i ? receipt.ends[i - 1].step : 0)) abort();
    } else if (err_code() != EX_DATA)
        abort();
    err_clear();
    buffer_close(&text);
    return 0;
}
