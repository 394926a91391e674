// Pages of ListObjectsV2.
#include "remote/s3_listing.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/utf8.h"
#include <stdlib.h>

enum { DEPTH_MAX = 8, TEXT_MAX = 8192 };

typedef struct {
    size_t key, etag; // their places in `text`
    uint64_t size;
    bool has_key, has_size;
} ListedObject;

typedef struct {
    Bytes rest;
    Bytes open[DEPTH_MAX]; // the names of the elements around
    unsigned depth;
    Buffer value; // the text of the element around
    // Found so far:
    Buffer text, found; // NUL-terminated strings; ListedObject
    ListedObject object;
    size_t next;
    bool has_next, is_truncated, is_escaped, is_listing;
} ListingParser;

static bool is(Bytes name, const char *word) {
    return name.size == strlen(word) && !memcmp(name.data, word, name.size);
}

static Bytes take(ListingParser *parser, size_t size) {
    const Bytes taken = {parser->rest.data, size};
    parser->rest.data += size, parser->rest.size -= size;
    return taken;
}

// Removes everything up to and with `end`.
static bool take_to(ListingParser *parser, const char *end, Bytes *taken) {
    const size_t size = strlen(end);
    const uint8_t *at = parser->rest.size ? memmem(parser->rest.data, parser->rest.size, end, size) : NULL;
    if (!at) return false;
    *taken = take(parser, (size_t)(at - parser->rest.data));
    take(parser, size);
    return true;
}

// &amp; and the like, with `name` between its two signs
static bool add_entity(Buffer *out, Bytes name) {
    static const struct {
        const char *name;
        char character;
    } entities[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (is(name, entities[i].name)) return buffer_add(out, &entities[i].character, 1), true;
    if (name.size < 2 || name.size > 8 || *name.data != '#') return false;
    char digits[9], *end;
    const bool is_hex = name.data[1] == 'x';
    const size_t skip = is_hex ? 2 : 1;
    memcpy(digits, name.data + skip, name.size - skip);
    digits[name.size - skip] = '\0';
    if (*digits == '+' || *digits == '-' || *digits == ' ' || !*digits) return false;
    const unsigned long code = strtoul(digits, &end, is_hex ? 16 : 10);
    if (*end || !code || code > UTF8_LAST || (code >= 0xD800 && code < 0xE000)) return false;
    uint8_t bytes[UTF8_BYTES_MAX];
    buffer_add(out, bytes, utf8_encode((uint32_t)code, bytes));
    return true;
}

// Text between two tags. Spaces between elements are kept, and dropped with the next tag.
static bool add_text(ListingParser *parser, Bytes text) {
    while (text.size) {
        const uint8_t *sign = memchr(text.data, '&', text.size);
        const size_t plain = sign ? (size_t)(sign - text.data) : text.size;
        if (parser->value.size + plain > TEXT_MAX || memchr(text.data, '\0', plain)) return false;
        if (plain) buffer_add(&parser->value, text.data, plain);
        text.data += plain, text.size -= plain;
        if (!sign) return true;
        const uint8_t *end = memchr(text.data, ';', text.size < 12 ? text.size : 12);
        if (!end || !add_entity(&parser->value, (Bytes){text.data + 1, (size_t)(end - text.data) - 1})) return false;
        text.size -= (size_t)(end + 1 - text.data), text.data = end + 1;
    }
    return true;
}

static size_t keep_value(ListingParser *parser) {
    const size_t place = parser->text.size;
    if (parser->value.size) buffer_add(&parser->text, parser->value.data, parser->value.size);
    buffer_add(&parser->text, "", 1);
    return place;
}

static bool begin_element(ListingParser *parser, Bytes name) {
    if (parser->depth == DEPTH_MAX || !name.size || (!parser->depth && parser->is_listing)) return false;
    if (!parser->depth && !is(name, "ListBucketResult")) return false;
    parser->is_listing = true;
    parser->open[parser->depth++] = name;
    parser->value.size = 0;
    if (parser->depth == 2 && is(name, "Contents")) parser->object = (ListedObject){0};
    return true;
}

static bool end_object(ListingParser *parser) {
    ListedObject *object = &parser->object;
    if (!object->has_key || !object->has_size) return false;
    if (!object->etag) {
        parser->value.size = 0;
        object->etag = keep_value(parser);
    }
    buffer_add(&parser->found, object, sizeof *object);
    return true;
}

static bool end_element(ListingParser *parser, Bytes name) {
    if (!parser->depth || parser->open[parser->depth - 1].size != name.size ||
        memcmp(parser->open[parser->depth - 1].data, name.data, name.size) != 0)
        return false;
    const unsigned depth = parser->depth--;
    Bytes value = {parser->value.data, parser->value.size};
    bool good = true;
    if (depth == 2 && is(name, "Contents"))
        good = end_object(parser);
    else if (depth == 2 && is(name, "IsTruncated"))
        parser->is_truncated = is(value, "true");
    else if (depth == 2 && is(name, "EncodingType"))
        parser->is_escaped = is(value, "url");
    else if (depth == 2 && is(name, "NextContinuationToken"))
        parser->next = keep_value(parser), parser->has_next = true;
    else if (depth == 3 && is(parser->open[1], "Contents")) {
        if (is(name, "Key"))
            parser->object.key = keep_value(parser), parser->object.has_key = true;
        else if (is(name, "ETag"))
            parser->object.etag = keep_value(parser);
        else if (is(name, "Size"))
            good = parser->object.has_size = bytes_take_number(&value, &parser->object.size) && !value.size;
    }
    parser->value.size = 0;
    return good;
}

// A tag, without its brackets. An attribute may hold '>' in quotes, which is refused as an unfinished tag.
static bool add_tag(ListingParser *parser, Bytes tag) {
    if (tag.size && *tag.data == '/') {
        Bytes name = {tag.data + 1, tag.size - 1};
        while (name.size && (name.data[name.size - 1] <= ' ')) name.size--;
        return end_element(parser, name);
    }
    const bool is_empty = tag.size && tag.data[tag.size - 1] == '/';
    Bytes name = {tag.data, tag.size - is_empty};
    for (size_t i = 0; i < name.size; i++)
        if (name.data[i] <= ' ') name.size = i;
    return begin_element(parser, name) && (!is_empty || end_element(parser, name));
}

static bool parse_document(ListingParser *parser) {
    Bytes part;
    while (parser->rest.size) {
        if (*parser->rest.data != '<') {
            const uint8_t *tag = memchr(parser->rest.data, '<', parser->rest.size);
            part = take(parser, tag ? (size_t)(tag - parser->rest.data) : parser->rest.size);
            if (parser->depth && !add_text(parser, part)) return false;
        } else if (parser->rest.size >= 2 && parser->rest.data[1] == '?') {
            if (!take_to(parser, "?>", &part)) return false;
        } else if (parser->rest.size >= 4 && !memcmp(parser->rest.data, "<!--", 4)) {
            take(parser, 4);
            if (!take_to(parser, "-->", &part)) return false;
        } else {
            take(parser, 1);
            if (!take_to(parser, ">", &part) || (part.size && *part.data == '!') || !add_tag(parser, part))
                return false;
        }
    }
    return parser->is_listing && !parser->depth;
}

// Removes the escapes of encoding-type=url in place; "%00" is refused.
static bool unescape(char *text) {
    char *out = text;
    for (const char *at = text; *at; at++) {
        if (*at != '%') {
            *out++ = *at == '+' ? ' ' : *at;
            continue;
        }
        const int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);
        if (low < 0 || !(high | low)) return false;
        *out++ = (char)(high << 4 | low);
        at += 2;
    }
    *out = '\0';
    return true;
}

static bool make_objects(ListingParser *parser, S3Listing *listing) {
    const ListedObject *found = (const ListedObject *)(const void *)parser->found.data;
    listing->count = parser->found.size / sizeof *found;
    listing->objects = allocate_zeroed(listing->count + 1, sizeof *listing->objects);
    listing->text = (char *)parser->text.data;
    parser->text = (Buffer){0};
    for (size_t i = 0; i < listing->count; i++) {
        char *key = listing->text + found[i].key;
        if (parser->is_escaped && !unescape(key)) return false;
        if (!*key) return false;
        listing->objects[i] = (S3Object){key, listing->text + found[i].etag, found[i].size};
    }
    if (!parser->is_truncated) return true;
    if (!parser->has_next) return false;
    listing->next = listing->text + parser->next;
    return *listing->next;
}

int s3_listing_parse(S3Listing *listing, Bytes xml) {
    ListingParser parser = {.rest = xml};
    *listing = (S3Listing){0};
    buffer_add(&parser.text, "", 1); // so that place 0 means no text
    const bool good = parse_document(&parser) && make_objects(&parser, listing);
    buffer_close(&parser.text);
    buffer_close(&parser.found);
    buffer_close(&parser.value);
    return good ? 0 : fail(EX_DATA, "the server sends no listing of a bucket, or a malformed one");
}

void s3_listing_close(S3Listing *listing) {
    free(listing->objects);
    free(listing->text);
    *listing = (S3Listing){0};
}
