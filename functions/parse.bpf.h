/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The headers of a packet, for the hand-written twins: Ethernet, up to two VLAN tags, up to four MPLS labels, IPv4 with
 * options or IPv6 with up to four extension headers, TCP, UDP or ICMP.
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
#define MAX_MPLS_LABELS 4
#define MAX_IPV6_EXTENSIONS 4

#define IPV4_OFFSET_MASK 0x1fff	/* of iphdr.frag_off */
#define IPV6_OFFSET_MASK 0xfff8	/* of fragment_hdr.frag_off */

/* Headers that <linux/...> keeps to the kernel. */
struct vlan_hdr {
	__be16 tci;
	__be16 encapsulated_proto;
};

struct mpls_hdr {
	__be32 entry;		/* label (20 bits), traffic class (3), bottom of stack (1), time to live (8) */
};

#define MPLS_BOTTOM 0x100

struct fragment_hdr {
	__u8 nexthdr;
	__u8 reserved;
	__be16 frag_off;
	__be32 identification;
};

/* What ICMP and ICMPv6 begin with. */
struct icmp_hdr {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be16 id;
	__be16 sequence;
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
	union l4_ports *ports;		/* of TCP or UDP */
	struct tcphdr *tcp;
	struct icmp_hdr *icmp;		/* over IPv4 */
	struct icmp_hdr *icmp6;		/* over IPv6 */
	__u8 proto;			/* after the last IP or extension header */
};

/* What follows the IP headers at `pos`, where the IP packet has `left` more bytes. */
static __always_inline void parse_l4(struct headers *h, void *pos, void *end, __u32 left)
{
	switch (h->proto) {
	case IPPROTO_TCP: {
		struct tcphdr *tcp = pos;
		__u32 len;

		if ((void *)(tcp + 1) > end)
			return;
		len = tcp->doff * 4;
		if (len < sizeof(*tcp) || len > left || pos + len > end)
			return;
		h->tcp = tcp;
		h->ports = pos;
		return;
	}
	case IPPROTO_UDP: {
		struct udphdr *udp = pos;

		/* A length beyond the packet is fine: the first fragment of a datagram has that of the whole. */
		if ((void *)(udp + 1) > end || left < sizeof(*udp) || bpf_ntohs(udp->len) < sizeof(*udp))
			return;
		h->ports = pos;
		return;
	}
	case IPPROTO_ICMP:
		if (h->ip4 && left >= sizeof(struct icmp_hdr) && pos + sizeof(struct icmp_hdr) <= end)
			h->icmp = pos;
		return;
	case IPPROTO_ICMPV6:
		if (h->ip6 && left >= sizeof(struct icmp_hdr) && pos + sizeof(struct icmp_hdr) <= end)
			h->icmp6 = pos;
		return;
	}
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
	h->proto = ip->protocol;
	if (!(ip->frag_off & bpf_htons(IPV4_OFFSET_MASK)))
		parse_l4(h, pos + len, end, total - len);
}

static __always_inline void parse_ipv6(struct headers *h, void *pos, void *end)
{
	struct ipv6hdr *ip = pos;
	__u32 left;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return;
	h->ip6 = ip;
	h->proto = ip->nexthdr;
	left = bpf_ntohs(ip->payload_len);
	pos = ip + 1;

#pragma unroll
	for (int i = 0; i < MAX_IPV6_EXTENSIONS; i++) {
		struct ipv6_opt_hdr *ext = pos;
		bool is_later_fragment = false;
		__u32 len;

		if (h->proto == IPPROTO_TCP || h->proto == IPPROTO_UDP)
			break;
		if (pos + sizeof(struct fragment_hdr) > end)
			return;
		switch (h->proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			len = (ext->hdrlen + 1) * 8;
			break;
		case IPPROTO_FRAGMENT:
			is_later_fragment = ((struct fragment_hdr *)pos)->frag_off & bpf_htons(IPV6_OFFSET_MASK);
			len = sizeof(struct fragment_hdr);
			break;
		case IPPROTO_AH:
			len = (ext->hdrlen + 2) * 4;
			if (len < 12)
				return;
			break;
		default:
			goto transport;
		}
		if (len > left || pos + len > end)
			return;
		h->proto = ext->nexthdr;
		if (is_later_fragment)
			return;
		pos += len;
		left -= len;
	}
transport:
	parse_l4(h, pos, end, left);
}

/* Skips the labels at `*pos` and returns the EtherType of what follows, by its version; 0 where nothing known does. */
static __always_inline __be16 parse_mpls(void **pos, void *end)
{
#pragma unroll
	for (int i = 0; i < MAX_MPLS_LABELS; i++) {
		struct mpls_hdr *mpls = *pos;
		__u8 *version = *pos + sizeof(*mpls);

		if ((void *)(mpls + 1) > end)
			return 0;
		*pos = mpls + 1;
		if (!(mpls->entry & bpf_htonl(MPLS_BOTTOM)))
			continue;
		if ((void *)(version + 1) > end)
			return 0;
		switch (*version >> 4) {
		case 4:
			return bpf_htons(ETH_P_IP);
		case 6:
			return bpf_htons(ETH_P_IPV6);
		}
		return 0;
	}
	return 0;
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
	if (type == bpf_htons(ETH_P_MPLS_UC))
		type = parse_mpls(&pos, end);
	if (type == bpf_htons(ETH_P_IP))
		parse_ipv4(&h, pos, end);
	else if (type == bpf_htons(ETH_P_IPV6))
		parse_ipv6(&h, pos, end);
	return h;
}

/* ICMPv6 133 to 137; what has passed a router, and lost of its hop limit, cannot be meant for this link. */
static __always_inline bool is_neighbour_discovery(const struct headers *h)
{
	return h->icmp6 && h->icmp6->type >= 133 && h->icmp6->type <= 137 && h->ip6->hop_limit == 255;
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
