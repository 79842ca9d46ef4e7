/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * UDP firewall, the hand-written twin of udp_firewall.efsm: who is outside may only send to flows that somebody inside
 * has begun.
 *
 *   clang -O2 -g -target bpf -c udp_firewall.bpf.c [-DINSIDE=3 -DQUIET_NS=30000000000ULL ...]
 */
#include "../parse.bpf.h"

/* The ports of the two networks. */
#ifndef OUTSIDE
#define OUTSIDE 1
#endif
#ifndef INSIDE
#define INSIDE 2
#endif
#ifndef QUIET_NS
#define QUIET_NS 20000000000ULL
#endif

#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMP6_UNREACHABLE 1
#define ICMP6_PARAMETER_PROBLEM 4

struct endpoint {
	struct in6_addr addr;
	__be16 port;
};

/* Both directions of a flow have the same key: the smaller endpoint comes first. */
struct flow_key {
	struct endpoint low;
	struct endpoint high;
	__u8 proto;
	__u8 padding[3];
};

/* How far a flow has come. Flows without an entry are unknown. */
enum state { ASKED = 1, ANSWERED };

struct flow {
	__u64 deadline;		/* when it is forgotten */
	__u64 state;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

static __always_inline int forward(__u32 port)
{
	return bpf_redirect_map(&out_ports, port, XDP_ABORTED);
}

/* Whether the source is the larger endpoint. */
static __always_inline bool is_downward(const struct headers *h)
{
	if (h->ip4) {
		if (h->ip4->saddr != h->ip4->daddr)
			return bpf_ntohl(h->ip4->saddr) > bpf_ntohl(h->ip4->daddr);
	} else if (h->ip6) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			__u32 src = bpf_ntohl(h->ip6->saddr.in6_u.u6_addr32[i]);
			__u32 dst = bpf_ntohl(h->ip6->daddr.in6_u.u6_addr32[i]);

			if (src != dst)
				return src > dst;
		}
	}
	return bpf_ntohs(h->ports->source) > bpf_ntohs(h->ports->dest);
}

static __always_inline void fill_key(struct flow_key *key, const struct headers *h)
{
	bool downward = is_downward(h);
	struct endpoint *src = downward ? &key->high : &key->low;
	struct endpoint *dst = downward ? &key->low : &key->high;

	if (h->ip4) {
		src->addr = v4_mapped(h->ip4->saddr);
		dst->addr = v4_mapped(h->ip4->daddr);
	} else if (h->ip6) {
		src->addr = h->ip6->saddr;
		dst->addr = h->ip6->daddr;
	}
	src->port = h->ports->source;
	dst->port = h->ports->dest;
	key->proto = h->proto;
}

/* Whether this packet of a flow may come in. */
static __always_inline bool track(const struct headers *h, __u32 port)
{
	struct flow_key key = {};
	struct flow *flow;
	__u64 now = 0;

	fill_key(&key, h);
	flow = bpf_map_lookup_elem(&flows, &key);
	if (flow) {
		now = bpf_ktime_get_ns();
		if (now >= flow->deadline) {
			bpf_map_delete_elem(&flows, &key);
			flow = NULL;
		}
	}
	if (!flow) {
		if (port == INSIDE) {
			struct flow asked = { .deadline = (now ?: bpf_ktime_get_ns()) + QUIET_NS, .state = ASKED };

			bpf_map_update_elem(&flows, &key, &asked, BPF_NOEXIST);
		}
		return false;
	}
	flow->deadline = now + QUIET_NS;
	if (flow->state == ANSWERED)
		return true;
	if (port != OUTSIDE)
		return false;
	flow->state = ANSWERED;
	return true;
}

static __always_inline bool is_arp(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct vlan_hdr *vlan = (void *)(eth + 1);
	void *end = (void *)(long)ctx->data_end;

	if ((void *)vlan > end)
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_ARP))
		return true;
	if (eth->h_proto != bpf_htons(ETH_P_8021Q) && eth->h_proto != bpf_htons(ETH_P_8021AD))
		return false;
	return (void *)(vlan + 1) <= end && vlan->encapsulated_proto == bpf_htons(ETH_P_ARP);
}

/* Whether a packet that belongs to no flow may come in: what flows need besides their own packets. */
static __always_inline bool is_needed(struct xdp_md *ctx, const struct headers *h)
{
	if (h->icmp6)
		return is_neighbour_discovery(h) ||
		       (h->icmp6->type >= ICMP6_UNREACHABLE && h->icmp6->type <= ICMP6_PARAMETER_PROBLEM);
	if (h->icmp)
		return h->icmp->type == ICMP_UNREACHABLE || h->icmp->type == ICMP_TIME_EXCEEDED ||
		       h->icmp->type == ICMP_PARAMETER_PROBLEM;
	if (h->ip4 || h->ip6)
		return h->proto == IPPROTO_UDP;	/* later fragments */
	return is_arp(ctx);
}

SEC("xdp")
int udp_firewall(struct xdp_md *ctx)
{
	struct headers h = parse(ctx);
	__u32 port = ctx->ingress_ifindex;
	bool allowed = h.ports ? track(&h, port) : false;

	if (port == INSIDE)
		return forward(OUTSIDE);
	if (port != OUTSIDE)
		return XDP_DROP;
	if (allowed || (!h.ports && is_needed(ctx, &h)))
		return forward(INSIDE);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
