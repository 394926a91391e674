// Opening the pretokenizer, and where a text may be cut.
#include "tokenizer/merge/pretokenize.h"
#include "common/utf8.h"
#include "tokenizer/merge/unicode.h"

// The start of the character that ends before `at`; a stray byte is a character of its own, which is not valid.
static const uint8_t *character_before(const uint8_t *at, const uint8_t *begin, uint32_t *point) {
    const uint8_t *lead = at - 1;
    while (lead > begin && at - lead < 4 && (*lead & 0xC0) == 0x80) lead--;
    if (lead + utf8_decode(lead, at, point) == at) return lead;
    *point = UTF8_INVALID;
    return at - 1;
}

static bool is_line_end(uint8_t byte) { return byte == '\n' || byte == '\r'; }

// Where the white space at the end of the text begins, after the line ends that signs before it take.
static size_t last_space(Bytes text) {
    const uint8_t *at = text.data + text.size;
    uint32_t point = 0;
    bool signs = false;
    while (at > text.data) {
        const uint8_t *before = character_before(at, text.data, &point);
        const Class class = unicode_class(point);
        signs = class == CLASS_OTHER;
        if (class != CLASS_SPACE) break;
        at = before;
    }
    while (signs && at < text.data + text.size && is_line_end(*at)) at++;
    return (size_t)(at - text.data);
}

void pretokenizer_open(Pretokenizer *pretokenizer, Bytes text, Pattern pattern, Isa isa) {
    static PretokenizeNext *const *const next[] = {pretokenize_portable, ON_X86(pretokenize_avx2, pretokenize_portable),
                                                   ON_X86(pretokenize_avx512, pretokenize_portable)};
    pretokenizer->text = text;
    pretokenizer->pattern = pattern;
    pretokenizer->at = 0;
    pretokenizer->invalid = false;
    pretokenizer->next = next[isa][pattern];
    pretokenizer->before = (PretokenizeBlock){0};
    pretokenizer->pattern_before = (PatternBlock){0};
    pretokenizer->marks = (PatternMarks){0};
    pretokenizer->space_at = pattern_rules(pattern)->lines == LINES_SPLIT_INSIDE ? last_space(text) : text.size;
    pretokenizer->tail_at = text.size < PRETOKENIZE_TAIL / 2 ? 0 : (text.size - PRETOKENIZE_TAIL / 2) / 64 * 64;
    size_t tail_size = text.size - pretokenizer->tail_at;
    memcpy(pretokenizer->tail, text.data + pretokenizer->tail_at, tail_size);
    memset(pretokenizer->tail + tail_size, 0, PRETOKENIZE_TAIL - tail_size);
}

// Whether pieces end between two characters of different classes, whatever is before and after them. Not after white
// space: a cut there would put it at the end of its text, where the patterns treat it differently.
static bool ends_between(const PatternRules *rules, uint32_t left, uint32_t right, uint8_t byte) {
    const Class before = unicode_class(left), after = unicode_class(right);
    if (before == CLASS_SPACE || before == after) return false;
    if (rules->words == WORDS_BLANK) return true;
    if (before == CLASS_OTHER) // which may begin a word or take line ends with it
        return after == CLASS_NUMBER || (after == CLASS_SPACE && !is_line_end(byte));
    return before == CLASS_NUMBER || (byte != '\'' && unicode_form(right) != FORM_MARK);
}

// A piece never ends inside a contraction.
size_t pretokenize_cut(Bytes text, size_t from, Pattern pattern) {
    const PatternRules *rules = pattern_rules(pattern);
    for (size_t cut = text.size; cut-- > from && cut;) {
        const uint8_t *at = text.data + cut, *end = text.data + text.size;
        uint32_t point, before;
        unsigned length = utf8_decode(at, end, &point);
        if (point > UTF8_LAST || at[-1] == '\'') continue;
        if (cut >= length && !memcmp(at - length, at, length)) continue; // a run of one character
        character_before(at, text.data, &before);
        if (ends_between(rules, before, point, *at)) return cut;
    }
    return 0;
}
