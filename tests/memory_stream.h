// A Stream over memory: memory_stream is read forward, memory_file also with seeks.
#pragma once

#include "shardtool/ingest/stream.h"
#include <string.h>

typedef struct {
    Stream stream;
    Bytes bytes;
    size_t at; // of memory_read
} MemoryStream;

static inline ssize_t memory_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    Bytes bytes = ((MemoryStream *)stream)->bytes;
    size_t left = offset < bytes.size ? bytes.size - (size_t)offset : 0, take = left < size ? left : size;
    if (take) memcpy(data, bytes.data + offset, take);
    return (ssize_t)take;
}

static inline ssize_t memory_read(Stream *stream, void *data, size_t size) {
    MemoryStream *memory = (MemoryStream *)stream;
    ssize_t got = memory_read_at(stream, memory->at, data, size);
    memory->at += (size_t)got;
    return got;
}

static inline MemoryStream memory_stream(Bytes bytes) {
    return (MemoryStream){.stream = {.read = memory_read, .size = bytes.size, .name = "memory"}, .bytes = bytes};
}

static inline MemoryStream memory_file(Bytes bytes) {
    MemoryStream memory = memory_stream(bytes);
    memory.stream.read_at = memory_read_at;
    return memory;
}
