// Zip archives whose members are stored and not compressed, as torch.save writes them, with zip64 for large ones. The
// members lie in the map of the file.
#pragma once

#include "common/arena.h"
#include "common/bytes.h"

typedef struct {
    Bytes name, data;
    uint32_t crc;
    bool has_crc; // torch writes 0 for all members after set_crc32_options(False)
} ZipMember;

typedef struct {
    ZipMember *members; // in the arena
    size_t count;
} StoredZip;

// -1 (65): not an archive, cut, or with a compressed or encrypted member.
int stored_zip_open(StoredZip *zip, Arena *arena, Bytes file);

// The member of that name, or NULL.
const ZipMember *stored_zip_find(const StoredZip *zip, Bytes name);

int zip_member_check(const ZipMember *member); // its CRC-32; 65 with its name
