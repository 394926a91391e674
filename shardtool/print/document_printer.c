// Prints documents.
#include "shardtool/print/document_printer.h"
#include "dataset/provenance.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 18 };

static int flush(Buffer *out) {
    int status = fd_write(STDOUT_FILENO, out->data, out->size, "the output");
    out->size = 0;
    return status;
}

static void begin(DocumentPrinter *printer) {
    Buffer *out = &printer->out;
    buffer_add(out, "{", 1);
    if (printer->dataset) {
        buffer_print(out, "\"dataset\": ");
        json_add_string(out, printer->dataset);
        buffer_print(out, ", ");
    }
    if (printer->numbered) buffer_print(out, "\"document\": %" PRIu64 ", ", printer->number);
    buffer_print(out, "\"text\": \"");
}

int document_print(DocumentPrinter *printer, Bytes text, bool first, bool last) {
    Buffer *out = &printer->out;
    if (printer->raw) {
        buffer_add(out, text.data, text.size);
        if (last) buffer_add(out, "", 1);
    } else {
        if (first) begin(printer);
        json_add_text(out, text, last, &printer->carry);
        if (last) buffer_print(out, "\"");
        if (last) provenance_add_json(out, "", printer->row);
        if (last) buffer_print(out, "}\n");
    }
    printer->documents += last, printer->bytes += text.size;
    return out->size < FLUSH_BYTES ? 0 : flush(out);
}

int document_printer_finish(DocumentPrinter *printer, int status) {
    if (status == 0) status = flush(&printer->out);
    if (status == 0) log_replaced(printer->carry.replaced, printer->bytes, "");
    buffer_close(&printer->out);
    return status;
}
