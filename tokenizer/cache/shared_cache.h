// The second level of the word table: what one encoder of a process has merged, for the others and for later runs.
//
// An entry is u8 size, u8 count, u16 ids[count], the word's bytes, and zeros up to a multiple of 8; in memory and in a
// file alike.
#pragma once

#include "tokenizer/vocab.h"

enum { LEXICON_SIZE = 127, LEXICON_COUNT = 63, LEXICON_ALIGN = 8 };

// Where one encoder writes its next entries. Zeroed to begin with.
typedef struct {
    uint8_t *at, *end;
} LexiconRoom;

// Where the index speaks of a word, of 1 to LEXICON_SIZE bytes. Asks for that memory: there is something to do until it
// comes.
typedef struct {
    _Atomic uint32_t *line;
    uint32_t tag;
} LexiconPlace;
LexiconPlace lexicon_place(const Lexicon *lexicon, const uint8_t *word, size_t size);

// The count of ids, or 0 if the word is not known. ids has room for LEXICON_COUNT. Both are safe from all threads.
size_t lexicon_find(const Lexicon *lexicon, LexiconPlace place, const uint8_t *word, size_t size, uint16_t *ids);
// Does nothing if the word is there already, has more than LEXICON_COUNT ids, or its line is full.
void lexicon_add(Lexicon *lexicon, LexiconPlace place, LexiconRoom *room, const uint8_t *word, size_t size,
                 const uint16_t *ids, size_t count);

static inline size_t lexicon_entry_bytes(size_t size, size_t count) {
    return (2 + 2 * count + size + LEXICON_ALIGN - 1) & ~(size_t)(LEXICON_ALIGN - 1);
}

const Vocab *lexicon_vocab(const Lexicon *lexicon);
// The entry behind this one, the first for NULL; NULL at the end. All of them while no thread adds, or those loaded.
const uint8_t *lexicon_next(const Lexicon *lexicon, const uint8_t *entry, bool loaded);
void lexicon_loaded(Lexicon *lexicon); // says that those are all there are by now
// Of a file's content; name is for errors.
int lexicon_load_bytes(Lexicon *lexicon, Bytes file, const char *name);
