// Inputs: documents do not depend on where windows and reads end.
#include "common/file/file.h"
#include "shardtool/ingest/source.h"
#include "tests/unit/shardtool/fixture_documents.h"

static void check_documents(const char *text, SourceDocs docs, const char *want) {
    SourceOptions options = {.docs = docs, .text_field = "text"};
    Buffer out = {0};
    CHECK(read_documents(memory_stream(bytes_of_text(text)), &options, &out) == 0);
    buffer_add(&out, "", 1);
    if (strcmp((char *)out.data, want)) {
        print_error("'%s' gives '%s', not '%s'\n", text, (char *)out.data, want);
        test_failed("the documents wanted", __FILE__, __LINE__);
    }
    buffer_close(&out);
}

TEST(text_is_cut_into_files_lines_or_paragraphs) {
    check_documents("a\nb\n", DOCS_FILE, "a\nb\n\xFF");
    check_documents("a\r\n\nb", DOCS_LINES,
                    "a\xFF"
                    "b\xFF");
    check_documents("\n\n", DOCS_LINES, "");
    check_documents("\n \na\nb\n\t\n\nc\n", DOCS_PARAGRAPHS,
                    "a\nb\xFF"
                    "c\xFF");
    check_documents("a\r\n\r\nb\r\n", DOCS_PARAGRAPHS,
                    "a\xFF"
                    "b\xFF");
    check_documents("", DOCS_FILE, "");
}

// Places a text at every offset around the end of the window and compares with the same text at offset 0.
static void slide_over_edge(const char *filler, const char *text, SourceOptions options) {
    Buffer input = {0}, got = {0}, want = {0};
    size_t length = strlen(text), filler_size = strlen(filler);
    for (size_t before = STREAM_WINDOW_BYTES - length - 2; before <= STREAM_WINDOW_BYTES + 2; before++) {
        input.size = 0;
        while (input.size + filler_size <= before) buffer_add(&input, filler, filler_size);
        while (input.size < before) buffer_add(&input, "\n", 1);
        size_t lead = input.size;
        buffer_add(&input, text, length);
        CHECK(read_documents(memory_stream((Bytes){input.data, lead}), &options, &want) == 0);
        size_t head = want.size;
        CHECK(read_documents(memory_stream(bytes_of_text(text)), &options, &got) == 0);
        buffer_add(&want, got.data, got.size);
        CHECK(read_documents(memory_stream((Bytes){input.data, input.size}), &options, &got) == 0);
        CHECK_EQUAL(got.size, want.size);
        CHECK(got.size >= head && !memcmp(got.data, want.data, got.size));
    }
    buffer_close(&input), buffer_close(&got), buffer_close(&want);
}

TEST(lines_and_paragraphs_do_not_depend_on_the_window) {
    slide_over_edge("line\r\n", "\none\r\n two\r\n\r\n\r\nthree\n", (SourceOptions){.docs = DOCS_LINES});
    slide_over_edge("line\r\n\n", "\n\none\r\n two\r\n\t\r\n\r\nthree\n", (SourceOptions){.docs = DOCS_PARAGRAPHS});
}

TEST(json_lines_do_not_depend_on_the_window) {
    slide_over_edge("{\"text\": \"filler\"}\n",
                    "{\"n\": [-1.25e+3, true, {\"a\": null}], \"te\\u0078t\": \"a\\ud83d\\ude00\\n\\ud83d!\\\\\"}\r\n",
                    (SourceOptions){.text_field = "text"});
}

TEST(a_paragraph_longer_than_the_window_is_one_document) {
    Buffer text = {0}, got = {0};
    while (text.size < 3 * STREAM_WINDOW_BYTES) buffer_print(&text, "line %zu\r\n", text.size);
    size_t body = text.size - 2;
    buffer_print(&text, "\r\nnext");
    SourceOptions options = {.docs = DOCS_PARAGRAPHS};
    CHECK(read_documents(memory_stream((Bytes){text.data, text.size}), &options, &got) == 0);
    CHECK_EQUAL(got.size, body + 1 + 4 + 1);
    CHECK(!memcmp(got.data, text.data, body));
    buffer_close(&text), buffer_close(&got);
}

TEST(a_bad_json_line_is_refused_with_its_reason) {
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"{\"text\": \"a\"", "ends within an object"},
        {"{\"text\": \"a", "ends in a string"},
        {"{\"text\": \"a\tb\"}", "control character"},
        {"{\"text\": \"\\x\"}", "bad escape"},
        {"{\"text\": \"\\u12g4\"}", "bad escape"},
        {"{\"text\": 01}", "expected a JSON value"},
        {"{\"text\": \"a\"} x", "text after the object"},
        {"{\"text\": \"a\", \"text\": 1}", "no text at the key"},
        {"{\"text\": null, \"text\": 1}", "no text at the key"},
        {"{\"text\": [null]}", "no text at the key"},
        {"{\"text\" \"a\"}", "expected a colon"},
        {"{\"text\": \"a\",}", "expected a key"},
        {"{\"a\": [1 2]}", "expected a comma or ]"},
        {"{\"a\": [1}", "expected a comma or ]"},
        {"[1]", "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Buffer text = {0}, out = {0};
        buffer_print(&text, "{\"text\": \"good\"}\n%s\n", rows[i].line);
        SourceOptions options = {.text_field = "text"};
        CHECK(read_documents(memory_stream((Bytes){text.data, text.size}), &options, &out) < 0);
        CHECK_TEXT(err_text(), rows[i].why);
        CHECK_ERROR(EX_DATA, "'memory' line 2");
        buffer_close(&text), buffer_close(&out);
    }
}

// fault 9
TEST(a_json_line_nested_too_deep_is_bad_and_the_next_line_is_read) {
    Buffer text = {0}, out = {0};
    buffer_print(&text, "{\"a\": ");
    for (int i = 0; i < 100000; i++) buffer_add(&text, "[", 1);
    buffer_print(&text, "\n{\"text\": \"next\"}");
    SourceOptions options = {.text_field = "text", .skips.max = 1};
    CHECK(read_documents(memory_stream((Bytes){text.data, text.size}), &options, &out) == 0);
    CHECK_EQUAL(options.skips.count, 1);
    CHECK_TEXT(options.skips.first, "deep");
    CHECK(out.size == 5 && !memcmp(out.data, "next\xFF", 5));
    buffer_close(&text), buffer_close(&out);
}

TEST(a_bad_line_with_a_text_too_long_to_hold_ends_its_document_and_the_next_line_is_read) {
    Buffer text = {0}, out = {0};
    const char *ends[] = {"\", \"text\": \"b\"}", "\"", "\", \"a\": 1, }"};
    for (int i = 0; i < 3; i++) {
        text.size = 0;
        buffer_print(&text, "{\"text\": \"");
        while (text.size < 3 << 20) buffer_add(&text, "long ", 5);
        buffer_print(&text, "%s\n{\"text\": \"next\"}", ends[i]);
        SourceOptions options = {.text_field = "text"};
        CHECK(read_documents(memory_stream((Bytes){text.data, text.size}), &options, &out) < 0);
        CHECK_ERROR(EX_DATA, "'memory' line 1");
        options = (SourceOptions){.text_field = "text", .skips.max = 1}; // a part was already returned
        CHECK(read_documents(memory_stream((Bytes){text.data, text.size}), &options, &out) == 0);
        CHECK_EQUAL(options.skips.count, 1);
        CHECK(out.size > 1 << 20 && !memcmp(out.data, "long ", 5) && out.data[out.size - 6] == 0xFF);
        CHECK(!memcmp(out.data + out.size - 5, "next\xFF", 5));
        CHECK(memchr(out.data, 0xFF, out.size) == out.data + out.size - 6);
    }
    buffer_close(&text), buffer_close(&out);
}

static void add_file(const char *path) {
    char folder[64];
    snprintf(folder, sizeof folder, "%s", path);
    if (strrchr(folder, '/')) {
        *strrchr(folder, '/') = '\0';
        CHECK(dir_make(folder) == 0);
    }
    write_file(path, path, strlen(path));
}

TEST(folders_are_walked_in_byte_order_of_paths) {
    const char *const want[] = {"d/B", "d/a-b", "d/a.c", "d/a/0", "d/a/z/y", "d/a0", "d/\xC3\xA9"};
    for (int i = 6; i >= 0; i--) add_file(want[i]);
    add_file("d/.dot");
    add_file("d/.git/x");
    Inputs inputs;
    char *arguments[] = {"d"};
    CHECK(inputs_open(&inputs, 1, arguments, NULL) == 0);
    CHECK_EQUAL(inputs.file_count, 7);
    char path[PATH_MAX_BYTES];
    for (int i = 0; i < 7; i++) CHECK(!strcmp(input_path(&inputs, &inputs.files[i], path), want[i]));
    CHECK_EQUAL(inputs.arguments[0].files, 7);
    inputs_close(&inputs);
}

TEST(digest_of_an_input_covers_name_size_head_and_tail) {
    enum { SIZE = 200000 };
    char *data = calloc(1, SIZE), *arguments[] = {"f"};
    uint8_t seen[5][16];
    for (int i = 0; i < 5; i++) {
        if (i == 1) data[0] = 1;
        if (i == 2) data[SIZE - 1] = 1;
        if (i == 3) data[SIZE / 2] = 1; // the middle is not part of the digest
        write_file("f", data, i == 4 ? SIZE - 1 : SIZE);
        Inputs inputs;
        CHECK(inputs_open(&inputs, 1, arguments, NULL) == 0 && inputs_digest(&inputs) == 0);
        memcpy(seen[i], inputs.arguments[0].digest, 16);
        inputs_close(&inputs);
    }
    CHECK(memcmp(seen[0], seen[1], 16) && memcmp(seen[1], seen[2], 16) && memcmp(seen[3], seen[4], 16));
    CHECK(!memcmp(seen[2], seen[3], 16));
    free(data);
}

// fault 15
TEST(a_file_that_grows_while_it_is_read_is_an_error) {
    Buffer text = {0};
    while (text.size < 2 * STREAM_WINDOW_BYTES) buffer_print(&text, "some words\n");
    write_file("f", text.data, text.size);
    Inputs inputs;
    char *arguments[] = {"f"};
    CHECK(inputs_open(&inputs, 1, arguments, NULL) == 0);
    SourceOptions options = {.docs = DOCS_LINES};
    Source *source = source_open(&inputs, &options);
    Part part;
    CHECK(source_next(source, &part) == 1);
    write_file("f", text.data, text.size / 2 + 100000);
    int status;
    while ((status = source_next(source, &part)) > 0) continue;
    CHECK(status < 0);
    CHECK_ERROR(EX_IO, "changed while it was read");
    source_close(source);
    inputs_close(&inputs);
    buffer_close(&text);
}
