/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Port-knocking firewall, the hand-written twin of port_knocking.efsm: a host may reach the protected port only after
 * it has sent packets to four ports in the right order, each at most GAP_NS after the one before.
 *
 *   clang -O2 -g -target bpf -c port_knocking.bpf.c [-DOUT=1 -DKNOCK1=7000 ...]
 */
#include "../parse.bpf.h"

/* OUT is the port where admitted packets leave; without it they are passed on. */
#ifndef KNOCK1
#define KNOCK1 5123
#endif
#ifndef KNOCK2
#define KNOCK2 6234
#endif
#ifndef KNOCK3
#define KNOCK3 7345
#endif
#ifndef KNOCK4
#define KNOCK4 8456
#endif
#ifndef PROTECTED
#define PROTECTED 22
#endif
#ifndef GAP_NS
#define GAP_NS 1000000000ULL
#endif
#ifndef ADMITTED_NS
#define ADMITTED_NS 60000000000ULL
#endif

#define NO_PORT (-1)

/* How far a host has come. Closed is the state of hosts without an entry. */
enum state { CLOSED, FIRST, SECOND, THIRD, OPEN };

struct host {
	__u64 deadline;		/* when it is closed again */
	__u64 state;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct addr);
	__type(value, struct host);
} hosts SEC(".maps");

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

/* The knock that leads on from a state in which a host has an entry and the door is not open. */
static __always_inline int next_knock(__u64 state)
{
	switch (state) {
	case FIRST:
		return KNOCK2;
	case SECOND:
		return KNOCK3;
	default:
		return KNOCK4;
	}
}

/* What the knocks of the host, and this one, lead to. */
static __always_inline int knock(const struct addr *src, int dport)
{
	struct host *host = bpf_map_lookup_elem(&hosts, src);
	__u64 now = 0;

	if (host) {
		now = bpf_ktime_get_ns();
		if (now >= host->deadline) {
			bpf_map_delete_elem(&hosts, src);
			host = NULL;
		}
	}
	if (!host) {
		if (dport == KNOCK1) {
			struct host first = { .deadline = (now ?: bpf_ktime_get_ns()) + GAP_NS, .state = FIRST };

			bpf_map_update_elem(&hosts, src, &first, BPF_NOEXIST);
		}
		return XDP_DROP;
	}
	if (host->state == OPEN) {
		host->deadline = now + ADMITTED_NS;
		return dport == PROTECTED ? forward() : XDP_DROP;
	}
	if (dport == next_knock(host->state)) {
		host->state++;
		host->deadline = now + (host->state == OPEN ? ADMITTED_NS : GAP_NS);
	} else {
		bpf_map_delete_elem(&hosts, src);
	}
	return XDP_DROP;
}

SEC("xdp")
int port_knocking(struct xdp_md *ctx)
{
	union l4_ports *ports = NULL;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;
	struct cursor c;
	struct addr src;
	__u8 proto;

	switch (parse_link(ctx, &c)) {
	case bpf_htons(ETH_P_IP):
		ip4 = parse_ipv4(&c);
		if (!ip4)
			return XDP_DROP;
		src = v4_mapped(ip4->saddr);
		if (!is_later_fragment(ip4))
			ports = parse_ports(&c, ip4->protocol);
		break;
	case bpf_htons(ETH_P_IPV6):
		ip6 = parse_ipv6(&c);
		if (!ip6)
			return XDP_DROP;
		src = addr_of(&ip6->saddr);
		proto = ip6->nexthdr;
		ports = parse_ports6(&c, &proto);
		if (!ports && proto == IPPROTO_ICMPV6) {
			struct icmp_hdr *icmp6 = parse_icmp(&c);

			/* Hosts find each other without knocking. */
			if (icmp6 && is_neighbour_discovery(ip6, icmp6))
				return forward();
		}
		break;
	default:
		return is_arp(ctx) ? forward() : XDP_DROP;
	}
	return knock(&src, ports ? bpf_ntohs(ports->dest) : NO_PORT);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
