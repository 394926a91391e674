// One page about several runs: their curves in one chart each, and the keys in which they differ.
#pragma once

int comparison_write(const char *path, char **runs, int count); // run directories; -1 after fail()
