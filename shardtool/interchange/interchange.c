// The table of token files of other tools.
#include "shardtool/interchange/interchange.h"
#include "common/err.h"
#include <stdio.h>
#include <string.h>

#define DECLARE(name) extern const Interchange interchange_##name;
INTERCHANGE_FORMATS(DECLARE)
#define ROW(name) &interchange_##name,
static const Interchange *const formats[] = {INTERCHANGE_FORMATS(ROW)};

const Interchange *interchange_choose(const InterchangeOptions *options) {
    if (options->format == INTERCHANGE_NONE) return fail(EX_USAGE, "missing --format %s", INTERCHANGE_WORDS), NULL;
    const Interchange *format = formats[options->format];
    if (options->eot != EOT_BEFORE || !format->has_index) return format;
    fail(EX_USAGE, "--eot before does not apply to %s, whose index holds the documents", format->name);
    return NULL;
}

bool interchange_eot_before(const InterchangeOptions *options) {
    return (options->eot == EOT_AUTO ? formats[options->format]->eot : options->eot) == EOT_BEFORE;
}

void interchange_extension(const Interchange *format, char out[16]) {
    snprintf(out, 16, ".%.*s", (int)strcspn(format->extensions, "|"), format->extensions);
}

void interchange_pattern(Buffer *out) {
    buffer_print(out, "@(" CHARACTERS_FILE "|" VOCAB_FILE "|" VOCAB_CONFIG_FILE "|@(train|val)@(|_[0-9]*).@(");
    for (unsigned i = 0; i < INTERCHANGE_NONE; i++) buffer_print(out, "%s%s", i ? "|" : "", formats[i]->extensions);
    buffer_add(out, "))", 3);
}
