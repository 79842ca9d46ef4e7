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

/* Both directions of a flow have the same key: the smaller end comes first. Any order of the ends does. */
struct flow_key {
	struct addr low;
	struct addr high;
	__be16 low_port;
	__be16 high_port;
	__u32 proto;
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

/* Fills the key, where `downward` says that the source is the larger end. */
static __always_inline void fill_key(struct flow_key *key, const struct addr *src, const struct addr *dst,
				     const union l4_ports *ports, __u8 proto, bool downward)
{
	if (downward) {
		key->low = *dst;
		key->high = *src;
		key->low_port = ports->dest;
		key->high_port = ports->source;
	} else {
		key->low = *src;
		key->high = *dst;
		key->low_port = ports->source;
		key->high_port = ports->dest;
	}
	key->proto = proto;
}

/* Whether this packet of a flow may come in. */
static __always_inline bool track(const struct flow_key *key, __u32 port)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	__u64 now = 0;

	if (flow) {
		now = bpf_ktime_get_ns();
		if (now >= flow->deadline) {
			bpf_map_delete_elem(&flows, key);
			flow = NULL;
		}
	}
	if (!flow) {
		if (port == INSIDE) {
			struct flow asked = { .deadline = (now ?: bpf_ktime_get_ns()) + QUIET_NS, .state = ASKED };

			bpf_map_update_elem(&flows, key, &asked, BPF_NOEXIST);
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

/* What flows need besides their own packets. */
static __always_inline bool is_needed_icmp(const struct icmp_hdr *icmp)
{
	return icmp->type == ICMP_UNREACHABLE || icmp->type == ICMP_TIME_EXCEEDED ||
	       icmp->type == ICMP_PARAMETER_PROBLEM;
}

static __always_inline bool is_needed_icmp6(const struct ipv6hdr *ip, const struct icmp_hdr *icmp6)
{
	return is_neighbour_discovery(ip, icmp6) ||
	       (icmp6->type >= ICMP6_UNREACHABLE && icmp6->type <= ICMP6_PARAMETER_PROBLEM);
}

SEC("xdp")
int udp_firewall(struct xdp_md *ctx)
{
	__u32 port = ctx->ingress_ifindex;
	union l4_ports *ports;
	struct icmp_hdr *icmp;
	struct flow_key key;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;
	struct cursor c;
	bool allowed;
	__u8 proto;

	switch (parse_link(ctx, &c)) {
	case bpf_htons(ETH_P_IP):
		ip4 = parse_ipv4(&c);
		if (!ip4) {
			allowed = false;
			break;
		}
		proto = ip4->protocol;
		if (is_later_fragment(ip4)) {
			allowed = proto == IPPROTO_UDP;
			break;
		}
		ports = parse_ports(&c, proto);
		if (ports) {
			__u64 from = ip4->saddr, to = ip4->daddr;
			struct addr src = v4_mapped(from), dst = v4_mapped(to);

			fill_key(&key, &src, &dst, ports, proto,
				 from > to || (from == to && ports->source > ports->dest));
			allowed = track(&key, port);
			break;
		}
		icmp = proto == IPPROTO_ICMP ? parse_icmp(&c) : NULL;
		allowed = icmp && is_needed_icmp(icmp);
		break;
	case bpf_htons(ETH_P_IPV6):
		ip6 = parse_ipv6(&c);
		if (!ip6) {
			allowed = false;
			break;
		}
		proto = ip6->nexthdr;
		ports = parse_ports6(&c, &proto);
		if (ports) {
			struct addr src = addr_of(&ip6->saddr), dst = addr_of(&ip6->daddr);
			bool downward = src.high > dst.high;

			if (src.high == dst.high)
				downward = src.low > dst.low ||
					   (src.low == dst.low && ports->source > ports->dest);
			fill_key(&key, &src, &dst, ports, proto, downward);
			allowed = track(&key, port);
			break;
		}
		icmp = proto == IPPROTO_ICMPV6 ? parse_icmp(&c) : NULL;
		allowed = icmp && is_needed_icmp6(ip6, icmp);
		break;
	default:
		allowed = is_arp(ctx);
	}

	if (port == INSIDE)
		return forward(OUTSIDE);
	return port == OUTSIDE && allowed ? forward(INSIDE) : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
