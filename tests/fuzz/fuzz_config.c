// Any bytes as a configuration file: each mistake is one line, and without a mistake each value can be written and read
// back.
#include "tests/fuzz/fuzz.h"
#include "trainer/config/config.h"
#include <string.h>
#include <unistd.h>

static void check_values(const Config *config) {
    for (int key = 0; key < KEY_COUNT; key++) {
        char text[64], again[64];
        if (config_keys[key].type == OPT_STRING && !config_is_word(key)) continue; // paths of any length
        Config other = *config;
        config_value(config, key, text, sizeof text);
        if (!config_parse(&other, key, text)) abort();
        config_value(&other, key, again, sizeof again);
        if (strcmp(text, again)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[] = "/tmp/fuzz_config.XXXXXX";
    static int fd = -1;
    if (fd < 0) fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    ConfigReader reader;
    config_open(&reader);
    config_file(&reader, path);
    int lines = 0;
    for (size_t i = 0; i < reader.mistakes.size; i++) lines += reader.mistakes.data[i] == '\n';
    if (lines != reader.mistake_count) abort();
    if (!lines) check_values(&reader.config);
    config_close(&reader);
    err_clear();
    return 0;
}
