/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The hash of Jenkins, one at a time, over 56 bytes, four rounds. */
#define BYTES 64
#define COUNT 1

static inline u64 work(const u8 *data)
{
	u32 hash = 0;

	for (int round = 0; round < 4; round++) {
		for (int at = 8; at < BYTES; at++) {
			hash += data[at];
			hash += hash << 10;
			hash ^= hash >> 6;
		}
		hash += hash << 3;
		hash ^= hash >> 11;
		hash += hash << 15;
	}
	return hash;
}
