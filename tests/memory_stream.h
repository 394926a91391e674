// A Stream over memory, read forward or with seeks: set .stream.read or .stream.read_at to the functions below.
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
