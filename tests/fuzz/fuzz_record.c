// Any bytes as metrics.jsonl: lines are read or refused, members lie in their line, a line equals itself, and the
// configurations of processes are compared or refused.
#include "tests/fuzz/fuzz.h"
#include "trainer/audit/replay.h"

static void check(const RecordLine *line, Bytes whole) {
    static const char *const keys[] = {"loss", "chain", "config", "fingerprint", "first_sample", "data", "ms"};
    LineDifference difference;
    uint64_t number;
    if (!record_same(line, line, &difference)) abort();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        Bytes value;
        char text[64];
        record_number(line, keys[i], &number);
        if (record_text(line, keys[i], text, sizeof text) && !memchr(text, 0, sizeof text)) abort();
        if (!record_member(line, keys[i], &value)) continue;
        if (value.data < whole.data || value.data + value.size > whole.data + whole.size) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + !size); // so that a read beyond the file is found
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    const Record record = {.path = "record", .text = {copy, size}};
    Bytes rest = record.text;
    RecordLine line, process = {0};
    Buffer printed = {0};
    while (record_next(&record, &rest, &line) > 0) {
        check(&line, record.text);
        record_print_compared(&printed, &line);
        if (line.kind != LINE_PROCESS) continue;
        if (process.text.size && replay_check_change(&record, &process, &line) < 0 && err_code() != EX_DATA &&
            err_code() != EX_USAGE)
            abort();
        err_clear();
        process = line;
    }
    buffer_close(&printed);
    err_clear();
    RecordStep step;
    if (record_find(&record, 1, &step) == 0) check(&step.process, record.text);
    err_clear();
    free(copy);
    return 0;
}
