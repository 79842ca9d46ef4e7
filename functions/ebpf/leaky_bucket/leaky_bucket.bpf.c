/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Leaky bucket for each flow, as a window in time: what comes before the window opens is dropped, what comes in it moves it on,
 * what comes after it finds an empty bucket. leaky_bucket_gcra.bpf.c comes to the same with half the state.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c leaky_bucket.bpf.c [-DINTERVAL_NS=100000ULL -DBURST=50]
 */
#include "leaky_bucket.bpf.h"

struct window {
	__u64 opens;
	__u64 closes;		/* when the bucket is empty */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct window);
} buckets SEC(".maps");

SEC("xdp")
int leaky_bucket(struct xdp_md *ctx)
{
	union l4_ports *ports;
	struct flow_key key;
	struct window *window;
	__u64 now;

	if (!parse_flow(ctx, &key, &ports))
		return XDP_PASS;
	now = bpf_ktime_get_ns();
	window = bpf_map_lookup_elem(&buckets, &key);
	if (!window) {
		struct window first = { .opens = now + INTERVAL_NS - SLACK_NS, .closes = now + INTERVAL_NS };

		/* Without room for a bucket nothing says how much has passed. */
		return bpf_map_update_elem(&buckets, &key, &first, BPF_NOEXIST) ? XDP_DROP : XDP_PASS;
	}
	if (!is_from(now, window->opens))
		return XDP_DROP;
	if (is_from(now, window->closes)) {
		window->opens = now + INTERVAL_NS - SLACK_NS;
		window->closes = now + INTERVAL_NS;
	} else {
		window->opens += INTERVAL_NS;
		window->closes += INTERVAL_NS;
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
