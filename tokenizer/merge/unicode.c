// Code point classes, from the generated table.
#include "tokenizer/merge/unicode.h"
#include "tokenizer/merge/unicode_table.h"

Class unicode_class(uint32_t point) {
    if (point >= UNICODE_TABLE_END) return CLASS_OTHER;
    const uint64_t *masks = unicode_masks[unicode_index[point / 64]];
    return (Class)((masks[0] >> point % 64 & 1) | (masks[1] >> point % 64 & 1) << 1);
}

Form unicode_form(uint32_t point) {
    if (point >= UNICODE_FORMS_END)
        return point >= UNICODE_FAR_MARKS && point < UNICODE_FAR_MARKS_END ? FORM_MARK : FORM_NONE;
    const uint64_t *masks = unicode_form_masks[unicode_form_index[point / 64]];
    return (Form)((masks[0] >> point % 64 & 1) | (masks[1] >> point % 64 & 1) << 1);
}
