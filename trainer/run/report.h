// report.html: one self-contained page about a run.
#pragma once

#include "trainer/run/run.h"

int report_write(const Run *run);
