// How much of a card is used if Windows manages its memory.
#include "kernels/cuda/libraries/wddm.h"
#include <unistd.h>

const char *wddm_device = "/dev/dxg";

bool wddm_is_there(void) { return access(wddm_device, F_OK) == 0; }
