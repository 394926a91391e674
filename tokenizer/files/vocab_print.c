// Writing vocabularies in the forms of other tools.
#include "common/json_write.h"
#include "common/turns.h"
#include "common/utf8.h"
#include "tokenizer/files/vocab_table.h"
#include <stdlib.h>

static void add_text(Buffer *out, Bytes text) { json_add_text(out, text, true, &(JsonCarry){0}); }

// As vocab_spelling says, in UTF-8.
static void add_spelled(Buffer *out, Bytes token, bool json) {
    uint8_t spelled[VOCAB_TOKEN_MAX * UTF8_BYTES_MAX];
    size_t length = 0;
    for (size_t i = 0; i < token.size; i++) length += utf8_encode(vocab_spelling(token.data[i]), spelled + length);
    if (json)
        add_text(out, (Bytes){spelled, length});
    else
        buffer_add(out, spelled, length);
}

static void add_token(const Vocab *vocab, unsigned id, Buffer *out) {
    const Bytes token = vocab_bytes(vocab, id);
    if (vocab_is_special(vocab, id))
        add_text(out, token);
    else
        add_spelled(out, token, true);
}

void vocab_spell(const Vocab *vocab, unsigned id, Buffer *out) {
    const Bytes token = vocab_bytes(vocab, id);
    if (vocab_is_special(vocab, id))
        buffer_add(out, token.data, token.size);
    else
        add_spelled(out, token, false);
}

static void print_tokens(const Vocab *vocab, unsigned count, Buffer *out) {
    for (unsigned id = 0; id < count; id++) {
        buffer_print(out, id ? ",\n\"" : "{\"");
        add_token(vocab, id, out);
        buffer_print(out, "\": %u", id);
    }
    buffer_print(out, "}");
}

void vocab_print_json(const Vocab *vocab, Buffer *out) { print_tokens(vocab, vocab->size, out); }

static void add(Buffer *out, const char *text) { buffer_add(out, text, strlen(text)); }

// The merges, one a line: as strings of JSON with commas between them, or as they are.
static void print_merges(const Vocab *vocab, bool json, Buffer *out) {
    uint64_t *pairs = vocab_pairs(vocab);
    for (unsigned i = 0; i < vocab->pairs; i++) {
        if (json) add(out, i ? ",\n\"" : "\"");
        add_spelled(out, vocab_bytes(vocab, pair_left_id(pairs[i])), json);
        add(out, " ");
        add_spelled(out, vocab_bytes(vocab, pair_right_id(pairs[i])), json);
        add(out, json ? "\"" : "\n");
    }
    free(pairs);
}

void vocab_print_merges(const Vocab *vocab, Buffer *out) {
    add(out, "#version: 0.2\n");
    print_merges(vocab, false, out);
}

static void print_added(const Vocab *vocab, Buffer *out) {
    const char *comma = "";
    for (unsigned id = 0; id < vocab->size; id++) {
        if (!vocab_is_special(vocab, id)) continue;
        buffer_print(out, "%s{\"id\": %u, \"content\": \"", comma, id);
        comma = ",\n";
        add_text(out, vocab_bytes(vocab, id));
        buffer_print(out, "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                          "\"special\": true}");
    }
}

// trim_offsets is false as in the files of GPT-2 and Qwen: transformers finds the answers of a conversation by the
// offsets of tokens, and loses an answer whose first token begins with a blank that the token's offsets leave out.
static void print_byte_level(bool regex, Buffer *out) {
    buffer_print(out,
                 "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": %s}",
                 regex ? "true" : "false");
}

static void print_pre_tokenizer(const Vocab *vocab, Buffer *out) {
    if (vocab->pattern == PATTERN_gpt2) {
        print_byte_level(true, out);
        return;
    }
    const char *regex = pattern_regex(vocab->pattern);
    buffer_print(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
    add_text(out, bytes_of_text(regex));
    buffer_print(out, "\"}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    print_byte_level(false, out);
    buffer_print(out, "]}");
}

static void print_tokenizer(const Vocab *vocab, Buffer *out) {
    buffer_print(out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    print_added(vocab, out);
    buffer_print(out, "],\n\"normalizer\": null, \"pre_tokenizer\": ");
    print_pre_tokenizer(vocab, out);
    buffer_print(out, ",\n\"post_processor\": ");
    print_byte_level(vocab->pattern == PATTERN_gpt2, out);
    buffer_print(out, ",\n\"decoder\": ");
    print_byte_level(vocab->pattern == PATTERN_gpt2, out);
    buffer_print(
        out,
        ",\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false,\n%s\"vocab\": ",
        vocab->whole_pieces ? "\"ignore_merges\": true, " : "");
    print_tokens(vocab, vocab->size, out);
    buffer_print(out, ",\n\"merges\": [");
    print_merges(vocab, true, out);
    buffer_print(out, "]}}\n");
}

static void print_characters(const Vocab *vocab, Buffer *out) {
    for (unsigned id = 0; id < vocab->count; id++) {
        const Bytes text = vocab_bytes(vocab, id);
        buffer_add(out, text.data, text.size);
    }
}

const char *vocab_file_name(const Vocab *vocab) { return vocab->characters ? CHARACTERS_FILE : VOCAB_FILE; }

void vocab_print_file(const Vocab *vocab, Buffer *out) {
    (vocab->characters ? print_characters : print_tokenizer)(vocab, out);
}

// The ids of tokenize --turns, and which of them loss_tokens=answers counts. The template begins with bos_token, so
// that no tokenizer may add its own.
void vocab_print_chat_template(const Vocab *vocab, Buffer *out) {
    (void)vocab;
    add(out,
        "{{ bos_token }}{% for m in messages %}{% if m['content'] is not string %}{{ raise_exception('the content of a "
        "message is not a text') }}{% endif %}{% if m['role'] == 'assistant' %}<|assistant|>{% generation %}"
        "{{ m['content'] }}<|end|>{% endgeneration %}{% elif m['role'] in ['user', 'system'] %}<|{{ m['role'] }}|>"
        "{{ m['content'] }}<|end|>{% else %}{{ raise_exception('the role ' ~ m['role'] ~ ' is not one of system, user "
        "and assistant') }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}");
}

static void print_turns_config(const Vocab *vocab, Buffer *out) {
    Buffer template = {0};
    vocab_print_chat_template(vocab, &template);
    add(out, " \"chat_template\": \"");
    add_text(out, (Bytes){template.data, template.size});
    add(out, "\",\n");
    buffer_close(&template);
}

void vocab_print_config(const Vocab *vocab, const char *class, const char *more, Buffer *out) {
    const TurnIds turns = vocab_turns(vocab);
    const Bytes begin = vocab_bytes(vocab, vocab_end_of_text(vocab)),
                end = turns.known ? vocab_bytes(vocab, turns.ids[TURN_END]) : begin;
    buffer_print(out, "{\n \"tokenizer_class\": \"%s\",\n%s \"clean_up_tokenization_spaces\": false,\n", class, more);
    if (turns.known) print_turns_config(vocab, out);
    add(out, " \"bos_token\": \"");
    add_text(out, begin);
    if (!vocab_names_end(vocab)) { // for readers of a vocabulary, whatever eos_token becomes
        buffer_print(out, "\",\n \"end_of_text\": \"");
        add_text(out, begin);
    }
    buffer_print(out, "\",\n \"eos_token\": \"");
    add_text(out, end);
    buffer_print(out, "\",\n \"unk_token\": \""); // CTranslate2 loads no model without one
    add_text(out, begin);
    buffer_print(out, "\",\n \"add_bos_token\": false\n}\n"); // llama.cpp's converter adds one for some patterns
}
