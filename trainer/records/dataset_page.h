// The page of `report` about datasets: lengths of their documents as tables and histograms, and their sources.
#pragma once

// Writes the page to `path`. -1 after fail().
int dataset_page_write(const char *path, char **datasets, int count);
