// Any bytes as state.json of a checkpoint, with the hash that they should have: they are read or refused with 65.
// A state that was read is written, and must be readable again.
#include "common/hash.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/checkpoint/saved_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Buffer text = {0};
    SavedState saved = {0}, again = {0};
    ConfigReader reader;
    uint8_t hash[SAFE_HASH_BYTES];
    char digits[2 * sizeof hash + 1];
    config_open(&reader);
    buffer_add(&text, data, size);
    safe_hash(text.data, text.size, hash);
    hex_encode(digits, hash, sizeof hash);
    buffer_print(&text, ",\n \"hash\": \"%s\"\n}\n", digits);
    if (saved_state_parse(&saved, (Bytes){text.data, text.size}) == 0) {
        saved_state_settings(&saved, &reader.config);
        saved_state_fill(&saved, &reader, "state.json");
        text.size = 0;
        run_state_print(&saved.state, &reader.config, &saved.hashes, &text);
        if (saved_state_parse(&again, (Bytes){text.data, text.size}) < 0) abort();
    } else if (err_code() != EX_DATA)
        abort();
    err_clear();
    saved_state_close(&saved), saved_state_close(&again);
    config_close(&reader);
    buffer_close(&text);
    return 0;
}
