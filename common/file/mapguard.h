// Reading mapped files safely. A page of a mapping that cannot be read (the file was truncated, the disk or the network
// file system failed) raises SIGBUS, which would end the process without a word.
#pragma once

// Calls read(self) and returns its result; -1 after fail(EX_IO) naming `path` when a page could not be read. `read` is
// then left where it was, so it must not hold locks or own memory at that point. Thread-safe, does not nest.
int mapguard_run(int (*read)(void *self), void *self, const char *path);

// From now on such a page of a file, read outside of mapguard_run, ends the program with 74 and the file's name: fd_map
// calls it.
void mapguard_install(void);
