// What the commands of trainer share: the configuration from the command line.
#pragma once

#include "common/cli/cli.h"
#include "trainer/config/config.h"

// Collects the --key=value options of a command for config_read.
extern const MoreOptions config_options;

// Reads the configuration files, then the collected options, and logs which keys are ignored. -1 (2) after printing
// every mistake.
int config_read(ConfigReader *reader, int count, char **files);
