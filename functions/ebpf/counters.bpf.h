/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the protocol counters have in common: which protocol a packet has, behind up to two VLAN tags. */
#ifndef FLOWLOOM_COUNTERS_BPF_H
#define FLOWLOOM_COUNTERS_BPF_H

#include "../parse.bpf.h"

#define PROTOCOLS 256

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROTOCOLS);
	__type(key, __u32);
	__type(value, __u64);
} protocols SEC(".maps");

static __always_inline void count_packet(__u32 proto)
{
	__u64 *packets = bpf_map_lookup_elem(&protocols, &proto);

	if (packets)
		*packets += 1;
}

/* What is not IP, and IP that is cut short, counts as protocol 0. */
static __always_inline __u32 protocol_of(void *pos, void *end, __be16 type)
{
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = pos;

		return (void *)(ip + 1) <= end ? ip->protocol : 0;
	}
	if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = pos;

		return (void *)(ip + 1) <= end ? ip->nexthdr : 0;
	}
	return 0;
}

/* Counts a packet; its protocol, or -1 where the link headers are cut short. */
static __always_inline int count_protocol(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct eth_hdr *eth = (void *)(long)ctx->data;
	void *pos = eth + 1;
	__u32 proto;
	__be16 type;

	if (pos > end)
		return -1;
	type = eth->type;
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_hdr *vlan = pos;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		pos = vlan + 1;
		if (pos > end)
			return -1;
		type = vlan->encapsulated_proto;
	}
	proto = protocol_of(pos, end, type);
	count_packet(proto);
	return proto;
}

#endif
