// loader keygen: creates a key pair for tcp.
#include "common/cli/cli.h"
#include "common/err.h"
#include "loader/protocol/keys.h"
#include <stdio.h>

static int run(int count, char **arguments) {
    KeyPair pair;
    if (count != 1) return fail(EX_USAGE, "keygen needs one FILE argument, the file for the new keys");
    if (keys_make(&pair, arguments[0]) < 0) return -1;
    printf("%s\n", pair.public_key);
    return 0;
}

const Command loader_keygen = {"keygen", "FILE", "create a key pair for tcp and print the public key", NULL, run, NULL};
