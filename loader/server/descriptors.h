// Keeps the loader running when its descriptors are used up by connections.
#pragma once

// Raises the limit to the hard one. From then on, a connection for which no descriptor is left is closed, with a
// warning, at most every 10 seconds.
void descriptors_prepare(void);
