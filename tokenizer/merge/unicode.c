// Code point classes, from the generated table.
#include "tokenizer/merge/unicode.h"
#include "tokenizer/merge/unicode_table.h"

Class unicode_class(uint32_t point) {
    if (point >= UNICODE_TABLE_END) return CLASS_OTHER;
    const uint64_t *masks = unicode_masks[unicode_index[point / 64]];
    return (Class)((masks[0] >> point % 64 & 1) | (masks[1] >> point % 64 & 1) << 1);
}
