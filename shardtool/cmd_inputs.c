// The options of every command that reads documents.
#include "shardtool/cmd_inputs.h"
#include "common/err.h"

const char *input_docs = "file", *input_text_field = "text";
uint64_t input_max_bad = 0;

int input_options(SourceOptions *options) {
    static const char *const kinds[] = {[DOCS_FILE] = "file", [DOCS_LINES] = "lines", [DOCS_PARAGRAPHS] = "paragraphs"};
    *options = (SourceOptions){.text_field = input_text_field, .max_bad = input_max_bad};
    for (int i = 0; i < 3; i++)
        if (!strcmp(input_docs, kinds[i])) return options->docs = (SourceDocs)i, 0;
    return fail(EX_USAGE, "--docs '%s' is none of file, lines, paragraphs", input_docs);
}
