// The loader's commands, for main.c.
#pragma once

#include "common/cli.h"

extern const Command cmd_keygen, cmd_serve, cmd_stats;
