// Temporary files that a signal must not leave: SIGINT, SIGTERM and SIGHUP remove them, then end the process as
// they would without a handler.
#pragma once

// Installs the handlers. A signal that the parent process ignores (nohup) stays ignored. Without this call the list of
// files is kept, and no signal removes them.
void cleanup_on_signals(void);

// The text that is printed when a signal ends the program, as "program: text": static memory, or NULL. Not under
// --quiet.
void cleanup_announce(const char *text);

// Adds a file; returns its number for cleanup_drop, or -1 when the list is full. Thread-safe.
int cleanup_add(const char *path);
void cleanup_drop(int number); // accepts -1
