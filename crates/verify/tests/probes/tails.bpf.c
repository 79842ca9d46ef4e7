/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tail calls in functions of programs: the results of the functions of all programs on the path are summed.
 *
 * After the Ethernet header: { number of calls, path }.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

int again(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(void *));
} next SEC(".maps") = { .values = { [0] = (void *)&again } };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline __u64 count(__u32 at, __u64 by)
{
	__u64 *place = bpf_map_lookup_elem(&counts, &at);

	if (!place)
		return 0;
	*place += by;
	return *place;
}

static __noinline int deeper(struct xdp_md *ctx, int most)
{
	if (count(0, 0) < (__u64)most)
		bpf_tail_call(ctx, &next, 0);
	/* Slot 1 is empty. */
	bpf_tail_call(ctx, &next, 1);
	return 5 + most;
}

static __noinline int deep(struct xdp_md *ctx, int most)
{
	int found = deeper(ctx, most);

	count(1, 1);
	return found + 1;
}

static __always_inline int start(struct xdp_md *ctx, int first)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int most, way, found;

	if (data + 16 > end)
		return XDP_PASS;
	most = data[14];
	way = data[15];
	if (first) {
		__u32 zero = 0;
		__u64 *place = bpf_map_lookup_elem(&counts, &zero);

		if (place)
			*place = 0;
	}
	count(0, 1);
	if (way & 1)
		found = deeper(ctx, most);
	else
		found = deep(ctx, most);
	count(2, found);
	/* The remaining calls, whether or not the count was reset. */
	if (way & 2)
		bpf_tail_call(ctx, &next, 0);
	count(3, 1);
	return found & 1 ? XDP_PASS : XDP_TX;
}

SEC("xdp")
int again(struct xdp_md *ctx)
{
	return start(ctx, 0);
}

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	return start(ctx, 1);
}

char _license[] SEC("license") = "GPL";
