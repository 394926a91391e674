// AWS's files of credentials and settings.
#include "remote/aws_profile.h"
#include <strings.h>

static bool equals(Bytes text, const char *word, bool with_case) {
    if (text.size != strlen(word)) return false;
    return with_case ? !memcmp(text.data, word, text.size) : !strncasecmp((const char *)text.data, word, text.size);
}

// "[name]", with or without a comment after it
static bool is_section(Bytes line, Bytes *name) {
    if (!line.size || *line.data != '[') return false;
    const uint8_t *end = memchr(line.data, ']', line.size);
    *name = end ? bytes_trimmed((Bytes){line.data + 1, (size_t)(end - line.data) - 1}) : (Bytes){line.data, 0};
    return true;
}

static bool keep(Bytes value, char kept[static PROFILE_VALUE_BYTES]) {
    if (value.size >= PROFILE_VALUE_BYTES) return false;
    for (size_t i = 0; i < value.size; i++)
        if (value.data[i] < ' ' || value.data[i] == 0x7F) return false;
    memcpy(kept, value.data, value.size);
    kept[value.size] = '\0';
    return true;
}

bool profile_find(Bytes text, const char *section, const char *parent, const char *key,
                  char value[static PROFILE_VALUE_BYTES]) {
    Bytes line, name;
    bool inside = false, below = false, found = false;
    while (bytes_next_line_or_rest(&text, &line)) {
        const Bytes trimmed = bytes_trimmed(line);
        if (!trimmed.size || strchr("#;", *trimmed.data)) continue;
        const bool indented = *line.data == ' ' || *line.data == '\t';
        if (!indented && is_section(line, &name)) {
            inside = equals(name, section, true), below = false;
            continue;
        }
        const uint8_t *sign = inside ? memchr(line.data, '=', line.size) : NULL;
        if (!sign) continue;
        const Bytes word = bytes_trimmed((Bytes){line.data, (size_t)(sign - line.data)});
        if (!indented) below = parent && equals(word, parent, false);
        if (indented != (parent != NULL) || (parent && !below) || !equals(word, key, false)) continue;
        found = keep(bytes_trimmed((Bytes){sign + 1, line.size - (size_t)(sign + 1 - line.data)}), value);
    }
    return found;
}

bool profile_has_section(Bytes text, const char *section) {
    Bytes line, name;
    while (bytes_next_line_or_rest(&text, &line))
        if (is_section(line, &name) && equals(name, section, true)) return true;
    return false;
}
