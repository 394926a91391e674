// The version, commit and date of this build.
#pragma once

extern const char *const version;        // "0.2.0"
extern const char *const version_commit; // "673da48a6075"; "+" after it: files were changed since. "" if unknown
extern const char *const version_date;   // of that commit, "2026-11-24", or ""
extern const char *const version_parts;  // as "without CUDA, MPI", or the CUDA runtime inside, its devices and drivers

// Prints all of it on stdout, with the instruction sets that the program has code for and the one it uses here.
void version_print(const char *program);
