/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The driver of the kernel's test runs: writes the addresses and ports of the next flow into the packet, and calls the
 * function as its tail. The same code with an empty function is the harness.
 *
 * The layout of the headers and the numbers in them are those of ../src/traffic.rs.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SOURCE_AT 26
#define DESTINATION_AT 30
#define PORTS_AT 34
#define HEADERS_BYTES 42

/* As in test_run.c. */
struct control {
	__u32 next;		/* the packets so far */
	__u32 mask;		/* of their number: the index into the order of flows */
	__u32 in_turn;		/* the flows come in turn, each once */
	__u32 target;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} order SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

SEC("xdp")
int driver(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, at, number;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	if (!c || data + HEADERS_BYTES > end)
		return XDP_ABORTED;
	number = c->next++;
	if (!c->in_turn) {
		__u64 *flow;

		at = number & c->mask;
		flow = bpf_map_lookup_elem(&order, &at);
		if (!flow)
			return XDP_ABORTED;
		number = *flow;
	}
	*(__be32 *)(data + SOURCE_AT) = bpf_htonl(0x0a000000 + number);
	*(__be32 *)(data + DESTINATION_AT) = bpf_htonl(0xc0a80000 | (number * 2654435761u >> 16));
	*(__be32 *)(data + PORTS_AT) = bpf_htonl((1024 + (number & 0x3fff)) << 16 | 53);
	bpf_tail_call(ctx, &targets, c->target);
	return XDP_ABORTED;
}

SEC("xdp")
int empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
