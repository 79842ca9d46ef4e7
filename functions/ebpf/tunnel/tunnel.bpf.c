/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * IP in IP, after Linux's sample xdp_tx_iptunnel: packets for a service are put into another IP packet and sent back out
 * of the port they came by, to where the service really is.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c tunnel.bpf.c
 */
#include "../counters.bpf.h"
#include "../swap.bpf.h"
#include "../../checksum.bpf.h"

#define TUNNEL_TTL 8

/* A service as its users see it. */
struct service {
	struct addr dest;	/* IPv4 as IPv6 writes it */
	__be16 port;
	__u8 proto;
	__u8 zero;
};

/* The two ends of a tunnel, of the same family as the service, and the link address of the next hop. */
struct tunnel {
	struct addr source;
	struct addr dest;
	struct mac hop;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, struct service);
	__type(value, struct tunnel);
} services SEC(".maps");

/* What was sent through tunnels, by its protocol. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROTOCOLS);
	__type(key, __u32);
	__type(value, __u64);
} tunnelled SEC(".maps");

static __always_inline void count(__u32 proto)
{
	__u64 *packets = bpf_map_lookup_elem(&tunnelled, &proto);

	if (packets)
		*packets += 1;
}

static __always_inline __be32 v4_of(const struct addr *mapped)
{
	return mapped->low >> 32;
}

/* Makes room for `len` bytes behind the Ethernet header, and writes that anew: from whom the packet was for, to the hop. */
static __always_inline void *grow(struct xdp_md *ctx, int len, const struct tunnel *tunnel, __be16 type)
{
	struct eth_hdr *old, *eth;
	void *end;

	if (bpf_xdp_adjust_head(ctx, -len))
		return NULL;
	end = (void *)(long)ctx->data_end;
	eth = (void *)(long)ctx->data;
	old = (void *)eth + len;
	if ((void *)(old + 1) > end || (void *)(eth + 1) + len > end)
		return NULL;
	*(struct mac *)eth->source = *(struct mac *)old->dest;
	*(struct mac *)eth->dest = tunnel->hop;
	eth->type = type;
	return eth + 1;
}

static __always_inline int tunnel_ipv4(struct xdp_md *ctx, struct cursor *c)
{
	struct service service = {};
	struct iphdr *ip = parse_ipv4(c);
	union l4_ports *ports;
	struct tunnel *tunnel;
	__u16 len;
	__u64 sum;

	if (!ip)
		return XDP_DROP;
	if (is_later_fragment(ip))
		return XDP_PASS;
	service.proto = ip->protocol;
	if (service.proto == IPPROTO_TCP || service.proto == IPPROTO_UDP) {
		ports = parse_ports(c, service.proto);
		if (!ports)
			return XDP_DROP;
		service.port = ports->dest;
	}
	service.dest = v4_mapped(ip->daddr);
	tunnel = bpf_map_lookup_elem(&services, &service);
	if (!tunnel)
		return XDP_PASS;

	len = bpf_ntohs(ip->tot_len) + sizeof(*ip);
	ip = grow(ctx, sizeof(*ip), tunnel, bpf_htons(ETH_P_IP));
	if (!ip)
		return XDP_DROP;
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = 0;
	ip->tot_len = bpf_htons(len);
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = TUNNEL_TTL;
	ip->protocol = IPPROTO_IPIP;
	ip->saddr = v4_of(&tunnel->source);
	ip->daddr = v4_of(&tunnel->dest);
	sum = bpf_htons(0x4500) + ip->tot_len + bpf_htons(TUNNEL_TTL << 8 | IPPROTO_IPIP) + change32(~0, ip->saddr) +
	      change32(~0, ip->daddr);
	ip->check = changed(~0, sum);
	count(service.proto);
	return XDP_TX;
}

static __always_inline int tunnel_ipv6(struct xdp_md *ctx, struct cursor *c)
{
	struct service service = {};
	struct ipv6hdr *ip = parse_ipv6(c);
	union l4_ports *ports;
	struct tunnel *tunnel;
	__u16 len;

	if (!ip)
		return XDP_DROP;
	service.proto = ip->nexthdr;
	if (service.proto == IPPROTO_TCP || service.proto == IPPROTO_UDP) {
		ports = parse_ports(c, service.proto);
		if (!ports)
			return XDP_DROP;
		service.port = ports->dest;
	}
	service.dest = addr_of(&ip->daddr);
	tunnel = bpf_map_lookup_elem(&services, &service);
	if (!tunnel)
		return XDP_PASS;

	len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	ip = grow(ctx, sizeof(*ip), tunnel, bpf_htons(ETH_P_IPV6));
	if (!ip)
		return XDP_DROP;
	*(__be32 *)ip = bpf_htonl(0x60000000);
	ip->payload_len = bpf_htons(len);
	ip->nexthdr = IPPROTO_IPV6;
	ip->hop_limit = TUNNEL_TTL;
	*(struct addr *)&ip->saddr = tunnel->source;
	*(struct addr *)&ip->daddr = tunnel->dest;
	count(service.proto);
	return XDP_TX;
}

SEC("xdp")
int tunnel(struct xdp_md *ctx)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct cursor c = { .pos = eth + 1, .end = (void *)(long)ctx->data_end };

	if (c.pos > c.end)
		return XDP_DROP;
	/* Tags would stay behind the new header: frames with them are none of ours. */
	switch (eth->type) {
	case bpf_htons(ETH_P_IP):
		return tunnel_ipv4(ctx, &c);
	case bpf_htons(ETH_P_IPV6):
		return tunnel_ipv6(ctx, &c);
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
