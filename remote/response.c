// Parses header fields by hand: they are lines of a few fixed forms.
#include "remote/response.h"
#include <strings.h>

static bool take_char(Bytes *text, char byte) {
    if (!text->size || *text->data != byte) return false;
    text->data++, text->size--;
    return true;
}

static bool take_word(Bytes *text, const char *word) {
    const size_t size = strlen(word);
    if (text->size < size || strncasecmp((const char *)text->data, word, size) != 0) return false;
    text->data += size, text->size -= size;
    return true;
}

// bytes 0-99/1000, bytes 0-99/*, bytes */1000
static bool parse_range(Bytes value, Response *response) {
    uint64_t first = 0, last = 0, total = 0;
    response->has_range = response->has_total = false;
    if (!take_word(&value, "bytes ")) return false;
    const bool has_range = !take_char(&value, '*');
    if (has_range &&
        (!bytes_take_number(&value, &first) || !take_char(&value, '-') || !bytes_take_number(&value, &last)))
        return false;
    if (!take_char(&value, '/')) return false;
    const bool has_total = !take_char(&value, '*');
    if (has_total && !bytes_take_number(&value, &total)) return false;
    if (value.size || last < first || (has_range && has_total && last >= total) || !(has_range || has_total))
        return false;
    response->has_range = has_range, response->first = first, response->end = has_range ? last + 1 : 0;
    response->has_total = has_total, response->total = total;
    return true;
}

static bool keep(char *field, size_t capacity, Bytes value) {
    if (value.size >= capacity || memchr(value.data, '\0', value.size)) return false;
    memcpy(field, value.data, value.size);
    field[value.size] = '\0';
    return true;
}

// <URL>; rel="next", <URL>; rel="last"
static bool parse_link(Bytes value, Response *response) {
    while (value.size) {
        value = bytes_trimmed(value);
        const uint8_t *end = value.size ? memchr(value.data, '>', value.size) : NULL;
        if (!take_char(&value, '<') || !end) return false;
        const Bytes url = {value.data, (size_t)(end - value.data)};
        value = (Bytes){end + 1, value.size - url.size - 1};
        const uint8_t *comma = value.size ? memchr(value.data, ',', value.size) : NULL;
        const Bytes parameters = {value.data, comma ? (size_t)(comma - value.data) : value.size};
        value.data += parameters.size + (comma != NULL), value.size -= parameters.size + (comma != NULL);
        if (!memmem(parameters.data, parameters.size, "rel=\"next\"", 10)) continue;
        if (!keep(response->next, sizeof response->next, url)) return false;
    }
    return true;
}

// A date ("Fri, 31 Dec 1999 ...") is not parsed: a wait of a minute serves as well. Anything else is not a wait.
static bool parse_retry(Bytes value, Response *response) {
    enum { DATE_WAIT_S = 60 };
    const bool is_date = value.size > 3 && value.data[3] == ',';
    if (!bytes_take_number(&value, &response->retry_after_s) || value.size)
        response->retry_after_s = is_date ? DATE_WAIT_S : 0;
    return true;
}

// "resolvers";r=0;t=55: with no request left, 55 s until there are more. huggingface_hub waits a second longer.
static bool parse_limit(Bytes value, Response *response) {
    const uint8_t *at = value.size ? memmem(value.data, value.size, ";t=", 3) : NULL;
    uint64_t wait_s;
    if (!at || !memmem(value.data, value.size, ";r=0;", 5)) return true;
    value.size -= (size_t)(at + 3 - value.data), value.data = at + 3;
    if (bytes_take_number(&value, &wait_s)) response->limit_s = wait_s + 1;
    return true;
}

static bool parse_linked_size(Bytes value, Response *response) {
    return bytes_take_number(&value, &response->linked_size) && !value.size;
}

static void begin(Response *response, Bytes line) {
    uint64_t status = 0;
    *response = (Response){0};
    while (line.size && *line.data != ' ') line.data++, line.size--;
    line = bytes_trimmed(line);
    if (bytes_take_number(&line, &status) && status >= 100 && status <= 999)
        response->status = (unsigned)status;
    else
        response->malformed = true;
}

void response_add_line(Response *response, Bytes line) {
#define TEXT(member) offsetof(Response, member), sizeof((Response *)0)->member
    static const struct {
        const char *name;
        size_t offset, capacity;
        bool (*parse)(Bytes value, Response *response);
    } fields[] = {
        {"content-range:", 0, 0, parse_range},       {"link:", 0, 0, parse_link},
        {"retry-after:", 0, 0, parse_retry},         {"ratelimit:", 0, 0, parse_limit},
        {"x-linked-size:", 0, 0, parse_linked_size}, {"etag:", TEXT(etag), NULL},
        {"last-modified:", TEXT(modified), NULL},    {"content-type:", TEXT(type), NULL},
        {"content-encoding:", TEXT(encoding), NULL}, {"x-linked-etag:", TEXT(linked_etag), NULL},
        {"x-repo-commit:", TEXT(commit), NULL},      {"x-amz-bucket-region:", TEXT(region), NULL},
    };
#undef TEXT
    if (take_word(&line, "HTTP/")) {
        begin(response, line);
        return;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!take_word(&line, fields[i].name)) continue;
        const Bytes value = bytes_trimmed(line);
        const bool good = fields[i].parse ? fields[i].parse(value, response)
                                          : keep((char *)response + fields[i].offset, fields[i].capacity, value);
        response->malformed |= !good;
        return;
    }
}

const char *response_validator(const Response *response) {
    return *response->etag ? response->etag : response->modified;
}

bool response_is_html(const Response *response) { return !strncasecmp(response->type, "text/html", 9); }
