// Requests a change of the datasets of a running loader (CONTROL in wire.h): for the command swap.
#pragma once

#include "loader/protocol/wire.h"

// Prints the loader's sentence when the change is made; otherwise fails with it and with the loader's exit code.
// `words` holds control->words texts. `own_key` is the file of the loader's own key pair, NULL for a loader without.
int control_send(const char *address, const char *own_key, const WireControl *control, const Buffer *words);
