// Any bytes as the header of a response: each line is added, and what is kept is within its bounds.
#include "remote/response.h"
#include "tests/fuzz/fuzz.h"

static void check(const Response *response) {
    if (response->has_range && response->first >= response->end) abort();
    if (response->has_range && response->has_total && response->end > response->total && !response->malformed) abort();
    if (response->status && (response->status < 100 || response->status > 999)) abort();
    const char *const fields[] = {response->etag,        response->modified, response->type,  response->encoding,
                                  response->linked_etag, response->commit,   response->region};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!memchr(fields[i], '\0', FIELD_BYTES)) abort();
    if (!memchr(response->next, '\0', LINK_BYTES)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Response response;
    Bytes rest = {data, size}, line;
    response = (Response){0};
    while (bytes_next_line_or_rest(&rest, &line)) {
        uint8_t *copy = malloc(line.size + 1); // so that a read beyond the line is found
        if (!copy) abort();
        if (line.size) memcpy(copy, line.data, line.size);
        response_add_line(&response, (Bytes){copy, line.size});
        free(copy);
        check(&response);
    }
    return 0;
}
