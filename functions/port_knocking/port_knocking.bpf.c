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
	__type(key, struct in6_addr);
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

SEC("xdp")
int port_knocking(struct xdp_md *ctx)
{
	struct headers h = parse(ctx);
	int dport = h.ports ? bpf_ntohs(h.ports->dest) : NO_PORT;
	struct in6_addr src;
	struct host *host;
	__u64 now = 0;

	if (h.ip4)
		src = v4_mapped(h.ip4->saddr);
	else if (h.ip6 && !is_neighbour_discovery(&h))
		src = h.ip6->saddr;
	else
		/* Hosts find each other without knocking. */
		return h.ip6 || is_arp(ctx) ? forward() : XDP_DROP;

	host = bpf_map_lookup_elem(&hosts, &src);
	if (host) {
		now = bpf_ktime_get_ns();
		if (now >= host->deadline) {
			bpf_map_delete_elem(&hosts, &src);
			host = NULL;
		}
	}
	if (!host) {
		if (dport == KNOCK1) {
			struct host first = { .deadline = (now ?: bpf_ktime_get_ns()) + GAP_NS, .state = FIRST };

			bpf_map_update_elem(&hosts, &src, &first, BPF_NOEXIST);
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
		bpf_map_delete_elem(&hosts, &src);
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
