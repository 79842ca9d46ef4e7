/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Big flow detector, the hand-written twin of big_flow.efsm: counts the packets of each connection and marks those of a
 * connection that has had THRESHOLD of them, until it is silent for QUIET_NS.
 *
 *   clang -O2 -g -target bpf -c big_flow.bpf.c [-DOUT=1 -DTHRESHOLD=10 ...]
 */
#include "../parse.bpf.h"

/* OUT is the port where packets leave; without it they are passed on. */
#ifndef THRESHOLD
#define THRESHOLD 100
#endif
#ifndef QUIET_NS
#define QUIET_NS 10000000000ULL
#endif
#ifndef MARK
#define MARK 1
#endif

_Static_assert(THRESHOLD > 0, "the first packet of a connection is never marked");

struct flow_key {
	struct addr src;
	struct addr dst;
	__be32 ports;
	__u32 proto;
};

struct flow {
	__u64 deadline;		/* when it is forgotten; 0 while it is small */
	__u32 packets;		/* counted while it is small */
	__u32 is_big;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

#ifdef OUT
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");
#endif

static __always_inline int forward(void)
{
#ifdef OUT
	return bpf_redirect_map(&out_ports, OUT, XDP_ABORTED);
#else
	return XDP_PASS;
#endif
}

/* Rewrites the type of service and mends the checksum by RFC 1624, equation 3: a wrong one stays wrong. */
static __always_inline void set_tos(struct iphdr *ip, __u8 tos)
{
	__u32 sum = (__u16)~ip->check + (__u16)~bpf_htons(ip->tos) + bpf_htons(tos);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	ip->tos = tos;
}

/* The traffic class lies across two bytes: version (4 bits), traffic class (8), flow label (20). */
static __always_inline void set_traffic_class(struct ipv6hdr *ip, __u8 class)
{
	__be16 *start = (__be16 *)ip;

	*start = (*start & bpf_htons(0xf00f)) | bpf_htons(class << 4);
}

/* Counts a packet of the flow; whether it is to be marked. */
static __always_inline bool is_big(const struct flow_key *key)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	__u64 now = 0;

	if (flow && flow->is_big) {
		now = bpf_ktime_get_ns();
		if (now >= flow->deadline) {
			bpf_map_delete_elem(&flows, key);
			flow = NULL;
		}
	}
	if (!flow) {
		struct flow first = { .packets = 1 };

		bpf_map_update_elem(&flows, key, &first, BPF_NOEXIST);
		return false;
	}
	if (!flow->is_big) {
		if (flow->packets++ < THRESHOLD)
			return false;
		flow->is_big = true;
		now = bpf_ktime_get_ns();
	}
	flow->deadline = now + QUIET_NS;
	return true;
}

SEC("xdp")
int big_flow(struct xdp_md *ctx)
{
	struct ipv6hdr *ip6 = NULL;
	struct iphdr *ip4 = NULL;
	union l4_ports *ports;
	struct flow_key key;
	struct cursor c;
	__u8 proto;

	switch (parse_link(ctx, &c)) {
	case bpf_htons(ETH_P_IP):
		ip4 = parse_ipv4(&c);
		if (!ip4 || is_later_fragment(ip4))
			return forward();
		proto = ip4->protocol;
		ports = parse_ports(&c, proto);
		if (!ports)
			return forward();
		key.src = v4_mapped(ip4->saddr);
		key.dst = v4_mapped(ip4->daddr);
		break;
	case bpf_htons(ETH_P_IPV6):
		ip6 = parse_ipv6(&c);
		if (!ip6)
			return forward();
		proto = ip6->nexthdr;
		ports = parse_ports6(&c, &proto);
		if (!ports)
			return forward();
		key.src = addr_of(&ip6->saddr);
		key.dst = addr_of(&ip6->daddr);
		break;
	default:
		return forward();
	}
	key.ports = ports->both;
	key.proto = proto;
	if (is_big(&key)) {
		if (ip4)
			set_tos(ip4, MARK);
		else if (ip6)
			set_traffic_class(ip6, MARK);
	}
	return forward();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
