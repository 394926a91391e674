// The table of input formats: a format is added by one row and four functions.
#include "shardtool/ingest/input_format.h"
#include "tests/test.h"

#define INPUT_FORMAT(name, ...)                                                                                        \
    int name##_bid(Bytes head);                                                                                        \
    FormatReader *name##_open(Stream *stream, SourceOptions *options);                                                 \
    int name##_next(FormatReader *reader, Part *part);                                                                 \
    void name##_close(FormatReader *reader);
INPUT_FORMAT(dummy)
#undef INPUT_FORMAT

int dummy_bid(Bytes head) { return head.size > 4 && !memcmp(head.data, "DUMMY", 5) ? 100 : 0; }
FormatReader *dummy_open(Stream *stream, SourceOptions *options) {
    (void)stream, (void)options;
    return calloc(1, sizeof(FormatReader));
}
int dummy_next(FormatReader *reader, Part *part) {
    (void)reader, (void)part;
    return 0;
}
void dummy_close(FormatReader *reader) { free(reader); }

static const InputFormat formats[] = {
#define INPUT_FORMAT(...) INPUT_FORMAT_ROW(__VA_ARGS__),
#include "shardtool/ingest/input_formats.def"
    INPUT_FORMAT(dummy, "dummy", "dummy", INPUT_DOCUMENTS, true)
#undef INPUT_FORMAT
};

TEST(a_new_input_format_is_one_row_of_the_table) {
    size_t count = sizeof formats / sizeof *formats;
    for (size_t i = 0; i < count; i++) {
        CHECK(formats[i].bid && formats[i].open && formats[i].next && formats[i].close);
        CHECK(formats[i].name && formats[i].title && formats[i].extensions);
    }
    const InputFormat *dummy = &formats[count - 1];
    CHECK(!strcmp(dummy->name, "dummy") && dummy->needs_seek);
    CHECK_EQUAL(dummy->bid((Bytes){(const uint8_t *)"DUMMY", 5}), 100);
}
