// Any bytes as the file of a part: as they are, and with the right hashes, as the members of its line (up to a line
// feed) and its entries.
#include "common/hash.h"
#include "shardtool/similar/part_files.h"
#include "tests/fuzz/fuzz.h"
#include <xxhash.h>

static void touch(const uint8_t *data, size_t size) {
    static volatile uint8_t sum;
    for (size_t i = 0; i < size; i++) sum = sum ^ data[i];
}

// 0 while there are entries.
static int read_entry(PartFile *file, PartKind kind) {
    PartBands bands;
    DocumentHash hash;
    PartHit hit;
    if (kind == PART_HASHES) return part_file_hash(file, &hash);
    if (kind == PART_HITS) {
        if (part_file_hit(file, &hit) < 0) return -1;
        touch(hit.words.data, hit.words.size);
        return hit.number == UINT64_MAX;
    }
    if (part_file_bands(file, &bands) < 0) return -1;
    if (!bands.count) return 0;
    touch(bands.keys, (size_t)MINHASH_BANDS * PART_KEY_BYTES);
    touch(bands.bitmap, bitmap_filter_bytes(bands.count));
    return 0;
}

static void read_file(Bytes bytes, PartKind kind) {
    static const DocumentInputs inputs;
    const PartSet set = {.directory = "parts", .kind = kind, .rules = "", .inputs = &inputs, .count = 1};
    uint8_t *copy = malloc(bytes.size + !bytes.size); // so that a read beyond the file is found
    if (!copy) abort();
    if (bytes.size) memcpy(copy, bytes.data, bytes.size);
    PartFile file = {.path = "part", .map = {copy, bytes.size}};
    if (part_file_check(&file, &set, 1) == 0) {
        while (read_entry(&file, kind) == 0) {
        }
        part_file_end(&file);
    }
    err_clear();
    free(copy);
}

static void add_hash(Buffer *out, bool is_hex) {
    XXH128_canonical_t hash;
    char hex[2 * sizeof hash + 1];
    XXH128_canonicalFromHash(&hash, XXH3_128bits(out->data, out->size));
    hex_encode(hex, hash.digest, sizeof hash);
    if (is_hex)
        buffer_print(out, ",\"header_hash\":\"%s\"}\n", hex);
    else
        buffer_add(out, hash.digest, sizeof hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Bytes rest = {data + 1, size - 1}, line;
    Buffer file = {0};
    if (!size) return 0;
    const PartKind kind = data[0] % PART_KINDS;
    read_file(rest, kind);
    if (!bytes_next_line(&rest, &line)) return 0;
    buffer_add(&file, line.data, line.size);
    add_hash(&file, true);
    buffer_add(&file, rest.data, rest.size);
    add_hash(&file, false);
    read_file((Bytes){file.data, file.size}, kind);
    buffer_close(&file);
    return 0;
}
