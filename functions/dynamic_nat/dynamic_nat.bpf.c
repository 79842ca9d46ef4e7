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
	union l4_ports ports;
	__u8 proto;
	__u8 padding[3];
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

static __always_inline int from_inside(const struct headers *h, __u16 port, __u64 now)
{
	__be32 public = bpf_htonl(PUBLIC);
	__be16 wire_port = bpf_htons(port);
	struct mapping *mapping;
	__u32 address_change;

	mapping = bpf_map_lookup_elem(&mappings, &port);
	if (mapping && now >= mapping->deadline) {
		bpf_map_delete_elem(&mappings, &port);
		mapping = NULL;
	}
	if (!mapping) {
		struct mapping mine = {
			.deadline = now + QUIET_NS,
			.host = h->ip4->saddr,
			.port = h->ports->source,
		};

		/* No flow was given a smaller port: the table of flows is full. */
		if (port < FIRST_PORT)
			return XDP_DROP;
		bpf_map_update_elem(&mappings, &port, &mine, BPF_NOEXIST);
	} else {
		/* Somebody else may still have it. */
		if (mapping->host != h->ip4->saddr || mapping->port != h->ports->source)
			return XDP_DROP;
		mapping->deadline = now + QUIET_NS;
	}

	address_change = change32(h->ip4->saddr, public);
	h->ip4->check = changed(h->ip4->check, address_change);
	change_l4(h, address_change + change16(h->ports->source, wire_port));
	h->ip4->saddr = public;
	h->ports->source = wire_port;
	return forward(OUTSIDE);
}

static __always_inline int from_outside(const struct headers *h)
{
	__u16 port = bpf_ntohs(h->ports->dest);
	struct mapping *mapping;
	__u32 address_change;
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

	address_change = change32(h->ip4->daddr, mapping->host);
	h->ip4->check = changed(h->ip4->check, address_change);
	change_l4(h, address_change + change16(h->ports->dest, mapping->port));
	h->ip4->daddr = mapping->host;
	h->ports->dest = mapping->port;
	return forward(INSIDE);
}

/* What has no mapping: private addresses are not shown outside, nor reached from there. */
static __always_inline int untranslated(const struct headers *h, __u32 in_port)
{
	if (in_port == INSIDE) {
		if (h->ip4 && h->ip4->saddr != bpf_htonl(PUBLIC))
			return XDP_DROP;
		return forward(OUTSIDE);
	}
	if (in_port == OUTSIDE) {
		if (h->ip4 && h->ip4->daddr != bpf_htonl(PUBLIC))
			return XDP_DROP;
		return forward(INSIDE);
	}
	return XDP_DROP;
}

SEC("xdp")
int dynamic_nat(struct xdp_md *ctx)
{
	struct headers h = parse(ctx);
	__u32 in_port = ctx->ingress_ifindex;
	struct flow_key key = {};
	struct flow *flow;
	__u64 now = 0;
	__u16 port;

	if (!h.ip4 || !h.ports)
		goto untranslated;

	key.src = h.ip4->saddr;
	key.dst = h.ip4->daddr;
	key.ports.both = h.ports->both;
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
	} else if (in_port == OUTSIDE && h.ip4->daddr == bpf_htonl(PUBLIC)) {
		return from_outside(&h);
	} else {
		goto untranslated;
	}
	return from_inside(&h, port, now);

untranslated:
	return untranslated(&h, in_port);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
