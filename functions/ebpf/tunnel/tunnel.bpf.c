/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * IP in IP, after Linux's sample xdp_tx_iptunnel: packets for a service are put into another IP packet and sent back out
 * of the port they came by, to where the service really is.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c tunnel.bpf.c
 */
#include "../counters.bpf.h"
#include "../encap.bpf.h"

#define TUNNEL_TTL 8

/* A service as its users see it. */
struct service {
	struct addr dest;	/* IPv4 as IPv6 writes it */
	__u32 port;
	__u32 proto;
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

static __always_inline int tunnel_ipv4(struct xdp_md *ctx, struct cursor *c)
{
	struct service service = {};
	struct iphdr *ip = parse_ipv4(c);
	union l4_ports *ports;
	struct tunnel *tunnel;
	__u64 len;

	if (!ip)
		return XDP_DROP;
	/* Only the first has the ports, and a datagram of which one part goes another way never comes together. */
	if (is_fragment(ip))
		return XDP_PASS;
	service.proto = ip->protocol;
	if (service.proto == IPPROTO_TCP || service.proto == IPPROTO_UDP) {
		ports = parse_ports(c, service.proto);
		if (!ports)
			return XDP_DROP;
		service.port = bpf_ntohs(ports->dest);
	}
	service.dest = v4_mapped(ip->daddr);
	tunnel = bpf_map_lookup_elem(&services, &service);
	if (!tunnel)
		return XDP_PASS;

	len = bpf_ntohs(ip->tot_len);
	if (!fits(ip, c->end, len))
		return XDP_DROP;
	ip = grow(ctx, sizeof(*ip), &tunnel->hop, bpf_htons(ETH_P_IP));
	if (!ip || (void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	write_ipv4(ip, v4_of(&tunnel->source), v4_of(&tunnel->dest), IPPROTO_IPIP, TUNNEL_TTL, len);
	count_packet(service.proto);
	return XDP_TX;
}

static __always_inline int tunnel_ipv6(struct xdp_md *ctx, struct cursor *c)
{
	struct service service = {};
	struct ipv6hdr *ip = parse_ipv6(c);
	union l4_ports *ports;
	struct tunnel *tunnel;
	__u64 len;

	if (!ip)
		return XDP_DROP;
	service.proto = ip->nexthdr;
	if (service.proto == IPPROTO_TCP || service.proto == IPPROTO_UDP) {
		ports = parse_ports(c, service.proto);
		if (!ports)
			return XDP_DROP;
		service.port = bpf_ntohs(ports->dest);
	}
	service.dest = addr_of(&ip->daddr);
	tunnel = bpf_map_lookup_elem(&services, &service);
	if (!tunnel)
		return XDP_PASS;

	len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (!fits(ip, c->end, len))
		return XDP_DROP;
	ip = grow(ctx, sizeof(*ip), &tunnel->hop, bpf_htons(ETH_P_IPV6));
	if (!ip || (void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	write_ipv6(ip, &tunnel->source, &tunnel->dest, IPPROTO_IPV6, TUNNEL_TTL, len);
	count_packet(service.proto);
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
