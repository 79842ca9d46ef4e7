/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Leaky bucket for each flow by the generic cell rate algorithm: one time a flow, when its next packet is due. Between its load
 * and its store lie a comparison, a choice and a sum, which a pipeline can do in one stage.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c leaky_bucket_gcra.bpf.c [-DINTERVAL_NS=100000ULL -DBURST=50]
 */
#include "leaky_bucket.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, __u64);
} buckets SEC(".maps");

SEC("xdp")
int leaky_bucket_gcra(struct xdp_md *ctx)
{
	union l4_ports *ports;
	struct flow_key key;
	__u64 now, late, *due;

	if (!parse_flow(ctx, &key, &ports))
		return XDP_PASS;
	now = bpf_ktime_get_ns();
	due = bpf_map_lookup_elem(&buckets, &key);
	if (!due) {
		__u64 next = now + INTERVAL_NS;

		/* Without room for a bucket nothing says how much has passed. */
		return bpf_map_update_elem(&buckets, &key, &next, BPF_NOEXIST) ? XDP_DROP : XDP_PASS;
	}
	late = now + SLACK_NS;
	if (!is_from(late, *due))
		return XDP_DROP;
	*due = (is_from(now, *due) ? now : *due) + INTERVAL_NS;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
