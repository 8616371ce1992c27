/* SPDX-License-Identifier: MIT */
/* One chunk of the deflate codec, and of `mm codecs --study`: a zlib stream (RFC 1950) of its bytes, by Debian's zlib.
 *
 * cDMA (M. Rhu et al., HPCA 2018) uses it as the upper bound of what compression of maps could gain; no GPU computes it
 * at the speed of a link. The paper names zlib and gzip, but no level; the level here is 6, the default of both. The
 * window is the chunk, 4 KiB. */
#ifndef PIPELINE_CODEC_CHUNK_DEFLATE_CHUNK_H
#define PIPELINE_CODEC_CHUNK_DEFLATE_CHUNK_H

#include <stdbool.h>

enum { MM_DEFLATE_LEVEL = 6, MM_DEFLATE_LEVEL_MOST = 9 };

/* Encodes at most 4096 bytes. Returns the bytes of the stream; -1 if they would be more than `room`. Allocates nothing:
 * zlib's state lies on the stack, below 128 KiB. */
int mm_deflate_encode(int level, const void *src, int bytes, void *dst, int room);

/* Decodes a stream of `count` bytes, the last 0 to 3 of which are padding zeros, to exactly `bytes` bytes (at most
 * 4096). Returns false if it is not such a stream; dst may have been written. */
bool mm_deflate_decode(const void *src, int count, void *dst, int bytes);

#endif
