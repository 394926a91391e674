// Plain text: the whole stream is one document, or each line, or each paragraph.
#include "common/err.h"
#include "common/utf8.h"
#include "shardtool/ingest/input_format.h"
#include <stdlib.h>

typedef struct {
    FormatReader reader;
    Stream *stream;
    SourceDocs docs;
    bool ended; // the window holds the end of the stream
    bool open;  // a part of the current document was returned, but not its last
    size_t at, end;
    uint64_t window_at; // offset in the stream of window[0]
    ReadPlace place;    // of the document: its first byte
    uint8_t window[STREAM_WINDOW_BYTES];
} TextReader;

// More than a few control characters mean binary data. A stray NUL on a page of text is accepted.
int text_bid(Bytes head) {
    size_t controls = 0;
    for (size_t i = 0; i < head.size; i++) {
        uint8_t c = head.data[i];
        controls += c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1B;
    }
    return controls > 1 + head.size / 64 ? BID_NONE : BID_TEXT;
}

void text_close(FormatReader *reader) { free(reader); }

FormatReader *text_open(Stream *stream, SourceOptions *options) {
    if (refuse_conditions(stream, options) < 0) return NULL;
    TextReader *text = malloc(sizeof *text);
    if (!text) die(EX_MEMORY, "no memory for a reader");
    text->stream = stream, text->docs = options->docs;
    text->ended = text->open = false, text->place = (ReadPlace){0};
    text->at = text->end = 0;
    text->window_at = stream->start.byte;
    if (!text->window_at || stream_seek(stream, text->window_at) == 0) return &text->reader;
    text_close(&text->reader);
    return NULL;
}

// Moves the unread bytes to the front of the window and reads more. A byte order mark at the head of the stream is no
// text. False when the window is full or the stream ended.
static bool refill(TextReader *text, int *status) {
    if (text->ended || (text->at == 0 && text->end == sizeof text->window)) return false;
    const bool first = text->window_at == 0 && text->end == 0;
    memmove(text->window, text->window + text->at, text->end - text->at);
    text->window_at += text->at, text->end -= text->at, text->at = 0;
    size_t space = sizeof text->window - text->end;
    ssize_t got = stream_read(text->stream, text->window + text->end, space);
    *status = got < 0 ? -1 : 0;
    text->ended = got < (ssize_t)space;
    if (got > 0) text->end += (size_t)got;
    if (first) text->at = text->end - utf8_unmarked((Bytes){text->window, text->end}).size;
    return true;
}

// Returns bytes [at, stop) as a part and continues at `next`.
static int return_part(TextReader *text, Part *part, size_t stop, size_t next, bool last) {
    if (!text->open) text->place.byte = text->window_at + text->at;
    *part = (Part){.text = {text->window + text->at, stop - text->at},
                   .first = !text->open,
                   .last = last,
                   .has_place = true,
                   .place = text->place};
    text->open = !last;
    text->at = next;
    return 1;
}

static int next_file_part(TextReader *text, Part *part) {
    int status = 0;
    text->at = text->end;
    if (!refill(text, &status)) return 0;
    if (status < 0) return -1;
    return text->end == text->at && !text->open ? 0 : return_part(text, part, text->end, text->end, text->ended);
}

static size_t without_return(const TextReader *text, size_t stop) {
    return stop > text->at && text->window[stop - 1] == '\r' ? stop - 1 : stop;
}

static int next_line_part(TextReader *text, Part *part) {
    for (;;) {
        const uint8_t *from = text->window + text->at, *newline = memchr(from, '\n', text->end - text->at);
        if (newline) {
            size_t stop = (size_t)(newline - text->window);
            size_t content = without_return(text, stop);
            if (content > text->at || text->open) return return_part(text, part, content, stop + 1, true);
            text->at = stop + 1; // skip an empty line
            continue;
        }
        int status = 0;
        if (refill(text, &status)) {
            if (status < 0) return -1;
        } else if (text->ended) {
            return text->end > text->at || text->open ? return_part(text, part, text->end, text->end, true) : 0;
        } else { // a line longer than the window; a final \r may belong to the line end
            size_t stop = without_return(text, text->end);
            return return_part(text, part, stop, stop, false);
        }
    }
}

static bool is_blank(uint8_t c) { return c == ' ' || c == '\t' || c == '\r'; }

// Skips blank lines at the start of the window. False when more bytes are needed to decide.
static bool skip_blank_lines(TextReader *text) {
    for (size_t i = text->at;; i++) {
        while (i < text->end && is_blank(text->window[i])) i++;
        if (i == text->end) {
            if (text->ended) text->at = i;
            return text->ended;
        }
        if (text->window[i] != '\n') return true;
        text->at = i + 1;
    }
}

// Finds the end of the paragraph: the line end before a blank line, or the end of the stream. *sure is false when the
// window does not decide it; then the paragraph extends at least to *stop.
static void find_paragraph_end(const TextReader *text, size_t *stop, bool *sure) {
    size_t from = text->at;
    for (;;) {
        const uint8_t *newline = memchr(text->window + from, '\n', text->end - from);
        if (!newline) {
            *stop = text->ended ? text->end : without_return(text, text->end);
            *sure = text->ended;
            return;
        }
        size_t line_end = (size_t)(newline - text->window), i = line_end + 1;
        while (i < text->end && is_blank(text->window[i])) i++;
        bool at_end = i == text->end;
        if (at_end || text->window[i] == '\n') {
            *stop = without_return(text, line_end);
            *sure = !at_end || text->ended;
            return;
        }
        from = i;
    }
}

static int next_paragraph_part(TextReader *text, Part *part) {
    for (;;) {
        size_t stop = 0;
        bool sure = text->open || skip_blank_lines(text);
        if (sure) {
            find_paragraph_end(text, &stop, &sure);
            if (sure) return stop > text->at || text->open ? return_part(text, part, stop, stop, true) : 0;
        }
        int status = 0;
        if (refill(text, &status)) {
            if (status < 0) return -1;
        } else { // a paragraph longer than the window; a blank line of that length is read as text
            if (stop <= text->at) stop = text->end;
            return return_part(text, part, stop, stop, false);
        }
    }
}

int text_next(FormatReader *reader, Part *part) {
    TextReader *text = (TextReader *)reader;
    if (text->docs == DOCS_LINES) return next_line_part(text, part);
    if (text->docs == DOCS_PARAGRAPHS) return next_paragraph_part(text, part);
    return next_file_part(text, part);
}
