// Header fields of responses, as RFC 9110 and RFC 8288 write them.
#include "remote/response.h"
#include "tests/test.h"

static Response response_of(const char *header) {
    Response response = {0};
    Bytes rest = {(const uint8_t *)header, strlen(header)}, line;
    while (bytes_next_line_or_rest(&rest, &line)) response_add_line(&response, line);
    return response;
}

TEST(a_range_of_a_response_has_its_first_byte_its_end_and_the_size_of_the_file) {
    Response response = response_of("HTTP/1.1 206 Partial Content\r\ncontent-RANGE: bytes 0-99/1000\r\n");
    CHECK_EQUAL(response.status, 206);
    CHECK(response.has_range && response.has_total && !response.malformed);
    CHECK_EQUAL(response.first, 0), CHECK_EQUAL(response.end, 100), CHECK_EQUAL(response.total, 1000);
    response = response_of("HTTP/1.1 416\r\nContent-Range: bytes */7\r\n");
    CHECK(!response.has_range && response.has_total && !response.malformed);
    CHECK_EQUAL(response.total, 7);
    response = response_of("HTTP/1.1 206 \r\nContent-Range: bytes 5-6/*\r\n");
    CHECK(response.has_range && !response.has_total && !response.malformed);
}

TEST(a_range_that_contradicts_itself_is_malformed) {
    static const char *const values[] = {"bytes 5-4/10",
                                         "bytes 0-10/10",
                                         "bytes 0-9/10x",
                                         "bytes 0-9",
                                         "bytes -9/10",
                                         "items 0-9/10",
                                         "bytes */*",
                                         "",
                                         "bytes 0-9999999999999999999/99999999999999999999",
                                         "bytes 0x0-9/10",
                                         "bytes 0 -9/10"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char header[200];
        snprintf(header, sizeof header, "HTTP/1.1 206\r\nContent-Range: %s\r\n", values[i]);
        CHECK(response_of(header).malformed);
    }
}

TEST(a_status_line_begins_a_new_response) {
    const Response response =
        response_of("HTTP/1.1 100 Continue\r\nETag: \"a\"\r\n\r\nHTTP/1.1 200 OK\r\nLast-Modified: now\r\n");
    CHECK_EQUAL(response.status, 200);
    CHECK(!strcmp(response.etag, "") && !strcmp(response_validator(&response), "now"));
}

TEST(the_next_page_of_a_listing_is_found_among_its_links) {
    Response response =
        response_of("HTTP/2 200\r\nLink: <https://h/last>; rel=\"last\", <https://h/a?b=c,d>; rel=\"next\"\r\n");
    CHECK(!response.malformed && !strcmp(response.next, "https://h/a?b=c,d"));
    response = response_of("HTTP/2 200\r\nLink: https://h/a; rel=\"next\"\r\n");
    CHECK(response.malformed);
}

TEST(a_field_longer_than_its_place_is_malformed_and_a_date_to_retry_is_a_minute) {
    char header[400] = "HTTP/1.1 200\r\nETag: ";
    memset(header + strlen(header), 'x', 300);
    CHECK(response_of(header).malformed);
    CHECK_EQUAL(response_of("HTTP/1.1 503\r\nRetry-After: 17\r\n").retry_after_s, 17);
    CHECK_EQUAL(response_of("HTTP/1.1 503\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n").retry_after_s, 60);
    CHECK_EQUAL(response_of("HTTP/1.1 503\r\nRetry-After: -5\r\n").retry_after_s, 0);
    CHECK_EQUAL(response_of("HTTP/1.1 503\r\nRetry-After: nan\r\n").retry_after_s, 0);
    CHECK_EQUAL(response_of("HTTP/1.1 503\r\nRetry-After: 5 s\r\n").retry_after_s, 0);
}
