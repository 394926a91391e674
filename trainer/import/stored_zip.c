// Reading a zip archive by its central directory.
#include "trainer/import/stored_zip.h"
#include "common/err.h"
#include <zlib.h>

enum {
    END_BYTES = 22,     // of the end of the central directory
    END_SCAN = 1 << 16, // it may have a comment after it
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    FLAG_ENCRYPTED = 1,
    EXTRA_ZIP64 = 1
};
static const uint32_t end_magic = 0x06054b50, locator_magic = 0x07064b50, end64_magic = 0x06064b50,
                      entry_magic = 0x02014b50, local_magic = 0x04034b50;

// `size` bytes of the file, or NULL.
static const uint8_t *part(Bytes file, uint64_t offset, uint64_t size) {
    return offset <= file.size && size <= file.size - offset ? file.data + offset : NULL;
}

static const uint8_t *find_end(Bytes file) {
    if (file.size < END_BYTES) return NULL;
    for (size_t i = 0; i <= END_SCAN && i <= file.size - END_BYTES; i++) {
        const uint8_t *at = file.data + file.size - END_BYTES - i;
        if (get_u32(at) == end_magic && get_u16(at + 20) == i) return at;
    }
    return NULL;
}

// The central directory; {NULL} after fail().
static Bytes find_directory(Bytes file) {
    const uint8_t *end = find_end(file), *locator = NULL, *end64 = NULL;
    if (!end) return fail(EX_DATA, "it is not a zip archive, or its end is missing"), (Bytes){0};
    uint64_t size = get_u32(end + 12), offset = get_u32(end + 16);
    if (end - file.data >= LOCATOR_BYTES && get_u32(end - LOCATOR_BYTES) == locator_magic)
        locator = end - LOCATOR_BYTES;
    if (locator) end64 = part(file, get_u64(locator + 8), END64_BYTES);
    if (locator && (!end64 || get_u32(end64) != end64_magic))
        return fail(EX_DATA, "the zip archive is damaged: its directory is not where it should be"), (Bytes){0};
    if (end64) size = get_u64(end64 + 40), offset = get_u64(end64 + 48);
    const uint8_t *directory = part(file, offset, size);
    if (!directory) fail(EX_DATA, "the zip archive is damaged: its directory ends after the file");
    return (Bytes){directory, directory ? size : 0};
}

// The sizes and the offset that did not fit 32 bits are in the zip64 field, in this order.
static bool take_zip64(Cursor extra, uint64_t *const values[3]) {
    for (const uint8_t *head; (head = cursor_take(&extra, 4));) {
        const uint8_t *data = cursor_take(&extra, get_u16(head + 2));
        if (get_u16(head) != EXTRA_ZIP64 || !data) continue;
        Cursor field = {data, data + get_u16(head + 2), false};
        for (int i = 0; i < 3; i++) {
            const uint8_t *value = *values[i] == UINT32_MAX ? cursor_take(&field, 8) : NULL;
            if (value) *values[i] = get_u64(value);
        }
        return !field.failed;
    }
    return *values[0] != UINT32_MAX && *values[1] != UINT32_MAX && *values[2] != UINT32_MAX;
}

static int take_member(ZipMember *member, Cursor *directory, Bytes file) {
    const uint8_t *entry = cursor_take(directory, ENTRY_BYTES);
    if (!entry || get_u32(entry) != entry_magic) return fail(EX_DATA, "the directory of the zip archive is damaged");
    const uint8_t *name = cursor_take(directory, get_u16(entry + 28));
    const uint8_t *extra = cursor_take(directory, get_u16(entry + 30));
    if (!cursor_take(directory, get_u16(entry + 32))) // the comment
        return fail(EX_DATA, "the directory of the zip archive is damaged");
    uint64_t packed = get_u32(entry + 20), size = get_u32(entry + 24), offset = get_u32(entry + 42);
    uint64_t *const values[] = {&size, &packed, &offset};
    *member = (ZipMember){.name = {name, get_u16(entry + 28)}, .crc = get_u32(entry + 16)};
    const int length = member->name.size < 100 ? (int)member->name.size : 100;
    if (get_u16(entry + 10) || get_u16(entry + 8) & FLAG_ENCRYPTED)
        return fail(EX_DATA, "'%.*s' in the zip archive is compressed or encrypted, which torch.save does not do",
                    length, (const char *)name);
    const bool wide = take_zip64((Cursor){extra, extra + get_u16(entry + 30), false}, values);
    const uint8_t *local = wide && packed == size ? part(file, offset, LOCAL_BYTES) : NULL;
    if (local && get_u32(local) == local_magic)
        member->data.data = part(file, offset + LOCAL_BYTES + get_u16(local + 26) + get_u16(local + 28), size);
    member->data.size = size;
    if (!member->data.data)
        return fail(EX_DATA, "'%.*s' in the zip archive ends after the file, or has no header", length,
                    (const char *)name);
    return 0;
}

int stored_zip_open(StoredZip *zip, Arena *arena, Bytes file) {
    const Bytes bytes = find_directory(file);
    *zip = (StoredZip){0};
    if (!bytes.data) return -1;
    Cursor directory = cursor_init(bytes);
    zip->members = arena_push(arena, (bytes.size / ENTRY_BYTES + 1) * sizeof *zip->members);
    uint32_t any_crc = 0;
    while (directory.at < directory.end) {
        if (take_member(&zip->members[zip->count++], &directory, file) < 0) return -1;
        any_crc |= zip->members[zip->count - 1].crc;
    }
    for (size_t i = 0; i < zip->count; i++) zip->members[i].has_crc = any_crc != 0;
    return 0;
}

const ZipMember *stored_zip_find(const StoredZip *zip, Bytes name) {
    for (size_t i = 0; i < zip->count; i++)
        if (zip->members[i].name.size == name.size && !memcmp(zip->members[i].name.data, name.data, name.size))
            return &zip->members[i];
    return NULL;
}

int zip_member_check(const ZipMember *member) {
    if (!member->has_crc || crc32_z(0, member->data.data, member->data.size) == member->crc) return 0;
    return fail(EX_DATA, "'%.*s' in the zip archive is damaged: its CRC-32 is wrong",
                member->name.size < 100 ? (int)member->name.size : 100, (const char *)member->name.data);
}
