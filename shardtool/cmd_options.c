// The variables behind the option rows that commands share.
#include "shardtool/cmd_options.h"

SourceOptions source_options = {.text_field = "text"};
