/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * IPv4 router, after Linux's sample xdp_router_ipv4: hosts that are known by their address come first, then the longest
 * prefix; what leaves gets the addresses of the link it leaves by.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c router.bpf.c [-DKEEP_TTL]
 */
#include "../counters.bpf.h"
#include "../swap.bpf.h"
#include "../../checksum.bpf.h"

#define MAX_PORTS 256

struct prefix {
	__u32 len;		/* bits that count */
	__be32 addr;
};

/* Where a prefix leads: by a port, to a gateway or, where there is none, to the host itself. */
struct route {
	__u32 port;
	__be32 gateway;
};

struct neighbour {
	__u32 port;
	struct mac mac;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct prefix);
	__type(value, struct route);
} routes SEC(".maps");

/* Hosts on the links: the router's ARP table. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __be32);
	__type(value, struct neighbour);
} neighbours SEC(".maps");

/* The router's own address on each port; all zeros where it has none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct mac);
} port_macs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

/* Who gets a packet for `dest` next; NULL where the kernel must find out. */
static __always_inline struct neighbour *next_hop(__be32 dest)
{
	struct neighbour *hop = bpf_map_lookup_elem(&neighbours, &dest);
	struct prefix prefix = { .len = 32, .addr = dest };
	struct route *route;
	__be32 via;

	if (hop)
		return hop;
	route = bpf_map_lookup_elem(&routes, &prefix);
	if (!route || !route->gateway)
		return NULL;
	via = route->gateway;
	hop = bpf_map_lookup_elem(&neighbours, &via);
	return hop && hop->port == route->port ? hop : NULL;
}

SEC("xdp")
int router(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct neighbour *hop;
	struct mac *own;
	__u32 port;

	count_protocol(ctx);
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	/* Tagged frames, ARP and IPv6 are the kernel's, and so is what needs an answer or a look at its options. */
	if (eth->type != bpf_htons(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 || ip->ttl <= 1)
		return XDP_PASS;

	hop = next_hop(ip->daddr);
	if (!hop)
		return XDP_PASS;
	port = hop->port;
	own = bpf_map_lookup_elem(&port_macs, &port);
	if (!own)
		return XDP_PASS;
	*(struct mac *)eth->dest = hop->mac;
	*(struct mac *)eth->source = *own;
#ifndef KEEP_TTL
	ip->ttl--;
	/* The word of the sum that holds it is one smaller in its first byte. */
	ip->check = changed(ip->check, change16(bpf_htons(0x100), 0));
#endif
	return bpf_redirect_map(&out_ports, port, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
