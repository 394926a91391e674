// Pages in HTML.
#include "trainer/records/html.h"
#include <string.h>

// Curves have the colours c0 to c7 (chart.h).
static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 "
    "1rem;color:#222;background:#fff}\n"
    "h1{overflow-wrap:anywhere}table{border-collapse:collapse;display:block;overflow-x:auto}\n"
    "th,td{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}\n"
    "pre{background:#f4f4f4;padding:1rem;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere}code{font-size:."
    "8rem}\n"
    ".charts{margin-top:1.5rem;display:grid;grid-template-columns:repeat(auto-fit,minmax(min(28rem,100%),1fr));gap:"
    "1rem}\n"
    ".charts figure:first-child{grid-column:1/-1}.charts figure:first-child "
    "text{font-size:14px}figure{margin:0;break-inside:avoid}figcaption{font-size:.9rem}\n"
    "svg{width:100%;display:block}svg line{stroke:#ddd}svg text{font-size:22px;fill:#666}\n"
    "polyline{fill:none;stroke-width:2;stroke-linejoin:round}polyline.raw{stroke-width:1;opacity:.3}\n"
    "hr{border:0;border-top:.9rem solid #36c;margin:.2rem 0}.bars td{text-align:right}.bars td:last-child{text-align:left}\n"
    "rect{fill:#000;opacity:0}rect:hover{opacity:.08}\n"
    ".c0{stroke:#888;color:#888}.c1{stroke:#2a7;color:#197a50}.c2{stroke:#c42;color:#b53a1c}.c3{stroke:#36c;color:#"
    "2b57b8}\n"
    ".c4{stroke:#a3a;color:#8c2b8c}.c5{stroke:#a80;color:#7a6200}.c6{stroke:#099;color:#077}.c7{stroke:#633;color:#633}"
    "\n"
    "circle.c0{fill:#888}circle.c1{fill:#2a7}circle.c2{fill:#c42}circle.c3{fill:#36c}circle.c4{fill:#a3a}\n"
    "circle.c5{fill:#a80}circle.c6{fill:#099}circle.c7{fill:#633}figcaption b{stroke:none}\n"
    "@media(max-width:40rem){.charts figure text{font-size:24px!important}}\n"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181c}pre{background:#23262b}svg "
    "line{stroke:#3a3d42}\n"
    "svg text{fill:#aaa}rect{fill:#fff}figcaption b{filter:brightness(1.6)}}\n"
    "@media print{body{max-width:none;margin:0;font-size:12px}}\n";

void html_begin(Buffer *out, const char *title) {
    buffer_print(out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
                      "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    html_string(out, title);
    buffer_print(out, "</title>\n<style>\n%s</style>\n<h1>", style);
    html_string(out, title);
    buffer_print(out, "</h1>\n");
}

void html_text(Buffer *out, const void *text, size_t size) {
    static const struct {
        char byte;
        const char *entity;
    } escapes[] = {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}};
    for (size_t i = 0; i < size; i++) {
        const char byte = ((const char *)text)[i], *entity = NULL;
        for (size_t k = 0; k < sizeof escapes / sizeof *escapes; k++)
            if (escapes[k].byte == byte) entity = escapes[k].entity;
        buffer_add(out, entity ? entity : &byte, entity ? strlen(entity) : 1);
    }
}

void html_string(Buffer *out, const char *text) { html_text(out, text, strlen(text)); }
