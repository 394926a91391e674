// hf://datasets/OWNER/NAME[@REVISION]/PATH: files of a dataset repository of huggingface.co, or of the hub in
// HF_ENDPOINT.
//
// The revision (main) is a branch, tag, commit or refs/convert/NAME and the like. It is resolved to its commit, which
// is in all names from then on, so that one run reads one state. PATH is a file, a folder, or a pattern of files; '*'
// in it matches '/' too. The token is the value of HF_TOKEN, else the content of the file HF_TOKEN_PATH, HF_HOME/token
// or ~/.cache/huggingface/token.
#pragma once

#include "remote/remote_entry.h"

#define HUB_PREFIX "hf://datasets/"

int hub_make_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object);
int hub_list(Remote *remote, const char *wanted, RemoteArgument *argument); // a folder or a pattern
bool hub_is_folder(const char *wanted);
int hub_pin(Buffer *name, const char *wanted, const RemoteObject *object);
