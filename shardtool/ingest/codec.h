// Stream codecs: gzip, xz, zstd and bzip2, through their own libraries, with every checksum checked.
#pragma once

#include "common/bytes.h"

typedef enum {
    CODEC_MORE, // continue with more input or more space
    CODEC_END,  // a gzip member, xz stream, zstd frame or bzip2 stream is complete; another may follow
    CODEC_BAD   // damaged, or not read; `error` says why
} CodecStatus;

typedef struct {
    Bytes in;       // unread input, advanced
    bool ended;     // no input follows `in`
    uint8_t *out;   // advanced
    size_t space;   // bytes left at `out`, reduced
    bool blocks;    // return after each block, so that `save` finds an end
    bool unchecked; // a frame or stream without a checksum has begun
    const char *error;
    bool whole; // with `error`: it is not damage, but a form that is not read; `error` has the command that reads it
} CodecStep;

// The state with which a decoder begins within a gzip member, between two blocks. All zero between members or frames.
typedef struct {
    uint32_t bits;        // of the byte before the place that belong to the next block
    uint32_t crc, size;   // of the member's content so far
    uint32_t window_size; // 0 between members or frames
    uint8_t window[32768];
} CodecState;

typedef struct {
    const char *name;
    const char *extensions; // separated by spaces
    bool (*matches)(Bytes head);
    void *(*open)(void); // dies (82) without memory
    CodecStatus (*decode)(void *state, CodecStep *step);
    void (*close)(void *state);
    // Optional. `save` returns false unless the last step ended between two blocks. After `restore`, the input begins
    // at the place, or with `bits` at the byte before it.
    bool (*save)(void *state, CodecState *saved);
    void (*restore)(void *state, const CodecState *saved);
} Codec;

const Codec *codec_find(Bytes head); // NULL when no magic number matches
// Removes the extension of a codec from a file name: "a.txt.gz" becomes "a.txt", "a.tgz" becomes "a.tar". False when
// the name has no such extension.
bool codec_strip_extension(char *name);
// Whether `extensions`, words separated by spaces, has one, in capitals or not.
bool extension_is_one_of(const char *extensions, const char *extension);
