// The files ~/.aws/credentials and ~/.aws/config: sections in brackets, and lines "key = value".
#pragma once

#include "common/bytes.h"

enum { PROFILE_VALUE_BYTES = 4096 };

// The value of a key of a section; the last of several, as in the command line of AWS. `parent` NULL: of a line that is
// not indented; else of the indented lines below "parent =". Names are compared with case, keys without. False if the
// key is missing, or its value is too long or has control characters.
bool profile_find(Bytes text, const char *section, const char *parent, const char *key,
                  char value[static PROFILE_VALUE_BYTES]);
bool profile_has_section(Bytes text, const char *section);
