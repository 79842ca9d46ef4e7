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

#define FIRST_GROUP 0xe0000000		/* 224.0.0.0: multicast, and behind it class E with the broadcast */

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

/* The router's own address on each port, by which it is spoken to and speaks; all zeros where it has none. */
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

/* The router's own address on a port; NULL where it has none. */
static __always_inline struct mac *own_mac(__u32 port)
{
	struct mac *own = bpf_map_lookup_elem(&port_macs, &port);

	return own && own->words[0] | own->words[1] | own->words[2] ? own : NULL;
}

/* Whether a frame is for the router itself, and not for a group or somebody else on the link [RFC 1812 5.3.4]. */
static __always_inline bool is_for_router(struct xdp_md *ctx, const struct eth_hdr *eth)
{
	const struct mac *own = own_mac(ctx->ingress_ifindex), *dest = (void *)eth->dest;

	return own && dest->words[0] == own->words[0] && dest->words[1] == own->words[1] &&
	       dest->words[2] == own->words[2];
}

/* Whether an IPv4 header without options is what it says, and its packet all there [RFC 1812 5.2.2]. */
static __always_inline bool is_sound(const struct iphdr *ip, const void *end)
{
	const __u16 *words = (void *)ip;
	__u64 len = bpf_ntohs(ip->tot_len), sum = 0;

	if (ip->version != 4 || ip->ihl != 5 || len < sizeof(*ip) || len > (__u64)(end - (void *)ip))
		return false;
#pragma unroll
	for (int i = 0; i < sizeof(*ip) / 2; i++)
		sum += words[i];
	return !changed(0xffff, sum);
}

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
	/* Tagged frames, ARP and IPv6 are the kernel's, and so is what has options, is wrong, or needs an answer. */
	if (eth->type != bpf_htons(ETH_P_IP) || !is_for_router(ctx, eth) || !is_sound(ip, end) || ip->ttl <= 1)
		return XDP_PASS;
	/* Where groups and broadcasts go, no table here says. */
	if (bpf_ntohl(ip->daddr) >= FIRST_GROUP)
		return XDP_PASS;

	hop = next_hop(ip->daddr);
	if (!hop)
		return XDP_PASS;
	port = hop->port;
	own = own_mac(port);
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
