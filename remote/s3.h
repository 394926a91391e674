// s3://BUCKET/KEY: settings, URLs and listings.
//
// The settings are the same as for the command line of AWS: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN, else the section of AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials);
// AWS_REGION, AWS_DEFAULT_REGION, else `region` of that section of AWS_CONFIG_FILE (~/.aws/config), else us-east-1;
// RemoteOptions.s3_endpoint, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, `endpoint_url` of s3 in the section `services` that
// the section names, `endpoint_url` of the section, else https://s3.REGION.amazonaws.com. Without keys, requests are
// not signed, as for public buckets. The bucket is in the path of URLs and not in the host, unless addressing_style of
// s3 is virtual, so that names with dots fit the certificate, and other servers the form.
#pragma once

#include "remote/remote_entry.h"

#define S3_PREFIX "s3://"

int s3_make_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object);
int s3_list(Remote *remote, const char *wanted,
            RemoteArgument *argument); // the objects below a prefix that ends in '/'
bool s3_is_folder(const char *wanted);
