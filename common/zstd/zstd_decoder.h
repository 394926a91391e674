// zstd decoders for bytes of others. zstd 1.5.1 to 1.5.7 can put bytes of its own buffers into the output of a crafted
// frame (CVE-2026-124851). So what a decoder has in memory begins as zeros, its window too, and one decoder serves one
// file (a chunk of a Parquet file, a shard by URL): the output depends on the file alone.
#pragma once

struct ZSTD_DCtx_s *zstd_decoder_open(void); // ZSTD_freeDCtx closes it. Ends the program when memory runs out
const char *zstd_version_text(void);         // of the library, and whether it is one of these; static
