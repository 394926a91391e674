// Sends CONTROL and prints the reply of the loader.
#include "loader/client/control.h"
#include "common/err.h"
#include <stdio.h>

enum { REACH_MS = 2000 }; // for a loader to answer at all

static int check_loader(Query *query) {
    WireMessage request, reply;
    Buffer tables = {0};
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_STATS;
    int status = query_send(query, &request, (Bytes){0}, REACH_MS, &reply, &tables);
    buffer_close(&tables);
    return status;
}

int control_ask(Query *query, const WireControl *control, const Buffer *words, WireMessage *reply, Buffer *sentence) {
    WireMessage request;
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_CONTROL, request.control = *control;
    if (check_loader(query) < 0) return -1;
    const int status = query_send(query, &request, (Bytes){words->data, words->size}, CONTROL_WAIT_MS, reply, sentence);
    if (status < 0 && err_code() == EX_PEER)
        fail_in("it is not known whether the change holds (see `millrace serve-status`%s)",
                control->action == WIRE_REWEIGHT ? " and the last line of the schedule" : "");
    return status;
}

int control_send(const char *address, const char *own_key, const WireControl *control, const Buffer *words) {
    Query query;
    Buffer sentence = {0};
    WireMessage reply;
    if (words->size > WIRE_REQUEST_MAX)
        return fail(EX_USAGE, "the arguments have %zu bytes, at most %d fit in a request", words->size,
                    WIRE_REQUEST_MAX);
    if (query_open(&query, address, own_key, NULL) < 0) return -1;
    int status = control_ask(&query, control, words, &reply, &sentence);
    buffer_add(&sentence, "", 1);
    char *text = (char *)sentence.data;
    if (status == 0 && !wire_clean_text(text, sentence.size)) status = fail(EX_PROTOCOL, "the reply is not a sentence");
    if (status == 0 && reply.control.exit_code) status = fail((int)reply.control.exit_code, "%s", text);
    if (status == 0 && (printf("%s\n", text) < 0 || fflush(stdout))) status = fail_errno("cannot write to stdout");
    buffer_close(&sentence);
    query_close(&query);
    return status;
}
