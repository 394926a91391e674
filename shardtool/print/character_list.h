// A vocabulary of characters, as tokenize reads it.
#pragma once

#include "shardtool/ingest/source.h"

// Prints each character that occurs in the documents once, by code point. 65 when there are too many, or no UTF-8.
int character_list_print(Source *source);
