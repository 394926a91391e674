// Whether a model can be trained on a dataset.
#pragma once

#include "loader/client/feed.h"
#include "trainer/config/config.h"

// -1 after fail(): 76 when the dataset has another vocabulary, 2 when a split has too few tokens.
int data_check(const Config *config, const FeedDataset *dataset);

// -1 (2) when the order of the samples is one pass (sampling_ends) that ends before the run, which has done `step`
// steps and taken `consumed` samples of this dataset.
int data_check_pass(const Config *config, const FeedDataset *dataset, uint64_t step, uint64_t consumed);

// Describes the dataset that the key `dataset` names, by its manifest, as a loader would. 1; 0 when the
// configuration names none, or a loader; -1 after fail() (66, 65).
int data_check_find(const Config *config, FeedDataset *dataset);
