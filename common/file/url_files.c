#include "common/file/url_files.h"

const UrlFiles *url_files;
