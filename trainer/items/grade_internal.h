// Of grade.c, which computes losses, and grade_results.c, which counts and writes what follows from them.
#pragma once

#include "trainer/items/grade.h"

void grade_write_head(const Grading *grading, const ItemsFile *file);
void grade_add(Grade *grade, const Grading *grading, const GradedItem *item, const ItemText *texts);
