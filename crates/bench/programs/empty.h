/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Nothing: the harness of each machine. */
#define BYTES 8
#define COUNT 1

static inline u64 work(const u8 *data)
{
	return 1;
}
