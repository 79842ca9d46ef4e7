/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The headers of a packet, for the hand-written twins: Ethernet, up to two VLAN tags, IPv4 with options or IPv6 with up
 * to four extension headers, TCP or UDP.
 *
 * A header counts only if it is wholly there, has the right version and fits the length that the IP header gives; the
 * first that does not count ends the parse. Later fragments have no ports.
 */
#ifndef FLOWLOOM_PARSE_BPF_H
#define FLOWLOOM_PARSE_BPF_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_VLAN_TAGS 2
#define MAX_IPV6_EXTENSIONS 4

#define IPV4_OFFSET_MASK 0x1fff	/* of iphdr.frag_off */
#define IPV6_OFFSET_MASK 0xfff8	/* of fragment_hdr.frag_off */

/* Headers that <linux/...> keeps to the kernel. */
struct vlan_hdr {
	__be16 tci;
	__be16 encapsulated_proto;
};

struct fragment_hdr {
	__u8 nexthdr;
	__u8 reserved;
	__be16 frag_off;
	__be32 identification;
};

/* What TCP and UDP begin with. */
union l4_ports {
	struct {
		__be16 source;
		__be16 dest;
	};
	__be32 both;
};

/* Where the headers are that the functions need; a null pointer stands for one that is absent. */
struct headers {
	struct iphdr *ip4;
	struct ipv6hdr *ip6;
	union l4_ports *ports;
	__u8 proto;		/* of the header that `ports` points to */
};

/* TCP or UDP at `pos`, where the IP packet has `left` more bytes. */
static __always_inline void parse_l4(struct headers *h, __u8 proto, void *pos, void *end, __u32 left)
{
	if (proto == IPPROTO_TCP) {
		struct tcphdr *tcp = pos;
		__u32 len;

		if ((void *)(tcp + 1) > end)
			return;
		len = tcp->doff * 4;
		if (len < sizeof(*tcp) || len > left || pos + len > end)
			return;
	} else if (proto == IPPROTO_UDP) {
		struct udphdr *udp = pos;

		/* A length beyond the packet is fine: the first fragment of a datagram has that of the whole. */
		if ((void *)(udp + 1) > end || left < sizeof(*udp) || bpf_ntohs(udp->len) < sizeof(*udp))
			return;
	} else {
		return;
	}
	h->ports = pos;
	h->proto = proto;
}

static __always_inline void parse_ipv4(struct headers *h, void *pos, void *end)
{
	struct iphdr *ip = pos;
	__u32 len, total;

	if ((void *)(ip + 1) > end || ip->version != 4)
		return;
	len = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (len < sizeof(*ip) || len > total || pos + len > end)
		return;
	h->ip4 = ip;
	if (!(ip->frag_off & bpf_htons(IPV4_OFFSET_MASK)))
		parse_l4(h, ip->protocol, pos + len, end, total - len);
}

static __always_inline void parse_ipv6(struct headers *h, void *pos, void *end)
{
	struct ipv6hdr *ip = pos;
	__u32 left;
	__u8 proto;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return;
	h->ip6 = ip;
	left = bpf_ntohs(ip->payload_len);
	proto = ip->nexthdr;
	pos = ip + 1;

#pragma unroll
	for (int i = 0; i < MAX_IPV6_EXTENSIONS; i++) {
		struct ipv6_opt_hdr *ext = pos;
		__u32 len;

		if (proto == IPPROTO_TCP || proto == IPPROTO_UDP)
			break;
		if (pos + sizeof(struct fragment_hdr) > end)
			return;
		switch (proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			len = (ext->hdrlen + 1) * 8;
			break;
		case IPPROTO_FRAGMENT:
			if (((struct fragment_hdr *)pos)->frag_off & bpf_htons(IPV6_OFFSET_MASK))
				return;
			len = sizeof(struct fragment_hdr);
			break;
		case IPPROTO_AH:
			len = (ext->hdrlen + 2) * 4;
			if (len < 12)
				return;
			break;
		default:
			return;
		}
		if (len > left || pos + len > end)
			return;
		proto = ext->nexthdr;
		pos += len;
		left -= len;
	}
	parse_l4(h, proto, pos, end, left);
}

static __always_inline struct headers parse(struct xdp_md *ctx)
{
	void *pos = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = pos;
	struct headers h = {};
	__be16 type;

	if ((void *)(eth + 1) > end)
		return h;
	type = eth->h_proto;
	pos = eth + 1;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_hdr *vlan = pos;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(vlan + 1) > end)
			return h;
		type = vlan->encapsulated_proto;
		pos = vlan + 1;
	}
	if (type == bpf_htons(ETH_P_IP))
		parse_ipv4(&h, pos, end);
	else if (type == bpf_htons(ETH_P_IPV6))
		parse_ipv6(&h, pos, end);
	return h;
}

/* An IPv4 address as IPv6 writes it, ::ffff:a.b.c.d. */
static __always_inline struct in6_addr v4_mapped(__be32 addr)
{
	struct in6_addr mapped = {};

	mapped.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	mapped.in6_u.u6_addr32[3] = addr;
	return mapped;
}

#endif
