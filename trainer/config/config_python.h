// Content of a configuration beside keys and values: lines of Python around nanoGPT's, and names of other programs.
#pragma once

#include "trainer/config/config.h"

bool python_is_ignored_key(const char *name, size_t length); // a key of nanoGPT that has no meaning here
bool python_is_computed(const char *name, size_t length);    // a name that nanoGPT's train.py computes from the keys
bool python_is_ignored(const char *statement);            // no assignment to a key: import, print(, a fence of a chat
const char *python_docstring(const char *statement);      // the quotes that begin it, or NULL
const char *python_next_statement(const char *statement); // of the same line, or NULL
bool python_is_call(const char *value);                   // as in model = GPT(config)
const char *python_skip_annotation(const char *at);       // the type in batch_size: int = 8
// Whether a statement sets keys from elsewhere: all names of a module or one that is a key, or a program that is run,
// but for nanoGPT's own, which reads files and flags.
bool python_takes_keys(const char *statement);

// Our name for a key or word of another program, for the hint in a mistake. NULL: the name is not known.
const char *python_key(const char *name);
const char *python_missing(const char *name); // a sentence, of a key for what is not done here; or NULL
const char *python_word(const char *text);
