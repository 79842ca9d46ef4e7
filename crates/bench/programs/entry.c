/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The entry of a program without maps: PROGRAM names its header, which defines work() on BYTES bytes. It is done for
 * COUNT packets that lie one after the other, so that short work takes longer than the harness. The result goes to the
 * first 8 bytes.
 *
 *   XDP   the packet by its context, for Flowloom
 *   else  the address of the packets, for other machines and for the processor
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#include PROGRAM

#ifdef __bpf__
#define SECTION __attribute__((section("xdp"), used))
#else
#define SECTION
#endif

#ifdef __clang__
#define ONCE_A_ROUND _Pragma("clang loop unroll(disable)")
#else
#define ONCE_A_ROUND
#endif

#define PASS 2

static inline u64 all(const u8 *data)
{
	u64 result = 0;

	ONCE_A_ROUND
	for (u32 number = 0; number < COUNT; number++)
		result = result * 3 + work(data + number * BYTES);
	return result;
}

#ifdef XDP
struct context {
	u32 data;
	u32 data_end;
};

SECTION int entry(struct context *context)
{
	u8 *data = (u8 *)(long)context->data, *end = (u8 *)(long)context->data_end;

	if (data + COUNT * BYTES > end)
		return 1;
#else
SECTION u64 entry(u8 *data)
{
#endif
	*(u64 *)data = all(data);
	return PASS;
}
