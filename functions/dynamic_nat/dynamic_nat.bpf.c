/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Dynamic NAT, the hand-written twin of dynamic_nat.efsm: the hosts inside share one public address, where each of their
 * flows has a source port of its own.
 *
 *   clang -O2 -g -target bpf -c dynamic_nat.bpf.c [-DINSIDE=3 -DPUBLIC=0xc6336401 ...]
 */
#include "../checksum.bpf.h"

/* The ports of the two networks. */
#ifndef OUTSIDE
#define OUTSIDE 1
#endif
#ifndef INSIDE
#define INSIDE 2
#endif
/* The address that the hosts share, 203.0.113.2. */
#ifndef PUBLIC
#define PUBLIC 0xcb007102
#endif
/* Bits that every given port has. */
#ifndef FIRST_PORT
#define FIRST_PORT 0x8000
#endif
#ifndef QUIET_NS
#define QUIET_NS 300000000000ULL
#endif

struct flow_key {
	__be32 src;
	__be32 dst;
	__be32 ports;
	__u32 proto;
};

/* A flow from inside. */
struct flow {
	__u64 deadline;		/* when it is forgotten */
	__u16 port;		/* what it was given */
	__u16 padding[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* Who has a port of the public address. */
struct mapping {
	__u64 deadline;		/* when the port is given back */
	__be32 host;
	__be16 port;
	__u16 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u16);
	__type(value, struct mapping);
} mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

static __u16 next_port;

static __always_inline int forward(__u32 port)
{
	return bpf_redirect_map(&out_ports, port, XDP_ABORTED);
}

/* An IPv4 packet with ports. */
struct headers {
	struct iphdr *ip;
	union l4_ports *ports;
	__u8 proto;
};

/* Gives the packet another end: `addr` and `l4_port` in its headers. */
static __always_inline void rewrite(const struct headers *h, __be32 *addr, __be32 to_addr, __be16 *l4_port,
				    __be16 to_port)
{
	__u64 change = change32(*addr, to_addr);

	h->ip->check = changed(h->ip->check, change);
	change += change16(*l4_port, to_port);
	if (h->proto == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)h->ports;

		tcp->check = changed(tcp->check, change);
	} else {
		struct udphdr *udp = (void *)h->ports;

		/* A checksum of 0 says that there is none. */
		if (udp->check)
			udp->check = changed(udp->check, change) ?: 0xffff;
	}
	*addr = to_addr;
	*l4_port = to_port;
}

static __always_inline int from_inside(const struct headers *h, __u16 port, __u64 now)
{
	__be32 public = bpf_htonl(PUBLIC);
	__be16 wire_port = bpf_htons(port);
	struct mapping *mapping;

	mapping = bpf_map_lookup_elem(&mappings, &port);
	if (mapping && now >= mapping->deadline) {
		bpf_map_delete_elem(&mappings, &port);
		mapping = NULL;
	}
	if (!mapping) {
		struct mapping mine = {
			.deadline = now + QUIET_NS,
			.host = h->ip->saddr,
			.port = h->ports->source,
		};

		/* No flow was given a smaller port: the table of flows is full. */
		if (port < FIRST_PORT)
			return XDP_DROP;
		bpf_map_update_elem(&mappings, &port, &mine, BPF_NOEXIST);
	} else {
		/* Somebody else may still have it. */
		if (mapping->host != h->ip->saddr || mapping->port != h->ports->source)
			return XDP_DROP;
		mapping->deadline = now + QUIET_NS;
	}

	rewrite(h, &h->ip->saddr, public, &h->ports->source, wire_port);
	return forward(OUTSIDE);
}

static __always_inline int from_outside(const struct headers *h)
{
	__u16 port = bpf_ntohs(h->ports->dest);
	struct mapping *mapping;
	__u64 now;

	mapping = bpf_map_lookup_elem(&mappings, &port);
	if (!mapping)
		return XDP_DROP;
	now = bpf_ktime_get_ns();
	if (now >= mapping->deadline) {
		bpf_map_delete_elem(&mappings, &port);
		return XDP_DROP;
	}
	mapping->deadline = now + QUIET_NS;

	rewrite(h, &h->ip->daddr, mapping->host, &h->ports->dest, mapping->port);
	return forward(INSIDE);
}

SEC("xdp")
int dynamic_nat(struct xdp_md *ctx)
{
	__u32 in_port = ctx->ingress_ifindex;
	struct headers h = {};
	struct flow_key key;
	struct flow *flow;
	struct cursor c;
	__u64 now = 0;
	__u16 port;

	if (parse_link(ctx, &c) != bpf_htons(ETH_P_IP))
		goto other;
	h.ip = parse_ipv4(&c);
	if (!h.ip)
		goto other;
	if (is_later_fragment(h.ip))
		goto untranslated;
	h.proto = h.ip->protocol;
	h.ports = parse_ports(&c, h.proto);
	if (!h.ports)
		goto untranslated;

	key.src = h.ip->saddr;
	key.dst = h.ip->daddr;
	key.ports = h.ports->both;
	key.proto = h.proto;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (flow) {
		now = bpf_ktime_get_ns();
		if (now >= flow->deadline) {
			bpf_map_delete_elem(&flows, &key);
			flow = NULL;
		}
	}
	if (flow) {
		flow->deadline = now + QUIET_NS;
		if (in_port != INSIDE)
			goto untranslated;
		port = flow->port;
	} else if (in_port == INSIDE) {
		struct flow mine = {};

		now = now ?: bpf_ktime_get_ns();
		mine.deadline = now + QUIET_NS;
		mine.port = port = next_port | FIRST_PORT;
		if (bpf_map_update_elem(&flows, &key, &mine, BPF_NOEXIST))
			port = 0;
		else
			next_port++;
	} else if (in_port == OUTSIDE && h.ip->daddr == bpf_htonl(PUBLIC)) {
		return from_outside(&h);
	} else {
		goto untranslated;
	}
	return from_inside(&h, port, now);

untranslated:
	/* Private addresses are not shown outside, nor reached from there. */
	if (in_port == INSIDE && h.ip->saddr != bpf_htonl(PUBLIC))
		return XDP_DROP;
	if (in_port == OUTSIDE && h.ip->daddr != bpf_htonl(PUBLIC))
		return XDP_DROP;
other:
	if (in_port == INSIDE)
		return forward(OUTSIDE);
	return in_port == OUTSIDE ? forward(INSIDE) : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
