/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The headers of a packet, for the hand-written twins: Ethernet, up to two VLAN tags, up to four MPLS labels, IPv4 with
 * options or IPv6 with up to four extension headers, TCP, UDP or ICMP.
 *
 * A header counts only if it is wholly there, has the right version and fits the length that the IP header gives; the
 * first that does not count ends the parse. Later fragments have no ports.
 *
 * Each function calls what it needs, with IPv4 and IPv6 apart, so that clang keeps neither pointers nor tests that
 * another one would need.
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
#define IPV4_FRAGMENT_MASK 0x3fff	/* with the flag that more fragments follow */
#define IPV6_OFFSET_MASK 0xfff8	/* of fragment_hdr.frag_off */

/* As in <linux/if_ether.h>, but not packed: of a packed header clang reads each byte by itself. */
struct eth_hdr {
	__u8 dest[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__be16 type;
};

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

/* An address of either family as IPv6 writes it, in halves: two loads and two stores copy one. */
struct addr {
	__u64 high;
	__u64 low;
};

/* Where a parse stands. */
struct cursor {
	void *pos;
	void *end;
	__u64 left;		/* bytes of the IP packet from here on */
};

/* Behind the labels: the EtherType of what follows, by its version; 0 where nothing known does. */
static __always_inline __u64 skip_labels(struct cursor *c)
{
#pragma unroll
	for (int i = 0; i < MAX_MPLS_LABELS; i++) {
		struct mpls_hdr *mpls = c->pos;
		__u8 *version = c->pos + sizeof(*mpls);

		if ((void *)(mpls + 1) > c->end)
			return 0;
		c->pos = mpls + 1;
		if (!(mpls->entry & bpf_htonl(MPLS_BOTTOM)))
			continue;
		if ((void *)(version + 1) > c->end)
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

/* Behind the tags and labels, in a frame whose EtherType is neither IPv4 nor IPv6. */
static __always_inline __u64 skip_tags(struct cursor *c, __u64 type)
{
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_hdr *vlan = c->pos;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(vlan + 1) > c->end)
			return 0;
		type = vlan->encapsulated_proto;
		c->pos = vlan + 1;
	}
	return type == bpf_htons(ETH_P_MPLS_UC) ? skip_labels(c) : type;
}

/* To the IP header: its EtherType, or that of something else. */
static __always_inline __u64 parse_link(struct xdp_md *ctx, struct cursor *c)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;
	__u64 type;

	c->pos = eth + 1;
	c->end = (void *)(long)ctx->data_end;
	if (c->pos > c->end)
		return 0;
	type = eth->type;
	/* First what is most common; else clang asks for the tags before that. */
	if (type == bpf_htons(ETH_P_IP))
		return bpf_htons(ETH_P_IP);
	if (type == bpf_htons(ETH_P_IPV6))
		return bpf_htons(ETH_P_IPV6);
	barrier_var(type);
	return skip_tags(c, type);
}

/* ARP, with one tag at most. */
static __always_inline bool is_arp(struct xdp_md *ctx)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct vlan_hdr *vlan = (void *)(eth + 1);
	void *end = (void *)(long)ctx->data_end;

	if ((void *)vlan > end)
		return false;
	if (eth->type == bpf_htons(ETH_P_ARP))
		return true;
	if (eth->type != bpf_htons(ETH_P_8021Q) && eth->type != bpf_htons(ETH_P_8021AD))
		return false;
	return (void *)(vlan + 1) <= end && vlan->encapsulated_proto == bpf_htons(ETH_P_ARP);
}

/* Behind an IPv4 header. */
static __always_inline struct iphdr *parse_ipv4(struct cursor *c)
{
	struct iphdr *ip = c->pos;
	__u64 len, total;

	if ((void *)(ip + 1) > c->end || ip->version != 4)
		return NULL;
	len = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (len < sizeof(*ip) || len > total || c->pos + len > c->end)
		return NULL;
	c->pos += len;
	c->left = total - len;
	return ip;
}

static __always_inline bool is_later_fragment(const struct iphdr *ip)
{
	return ip->frag_off & bpf_htons(IPV4_OFFSET_MASK);
}

/* Any part of a datagram that came in parts, the first too. */
static __always_inline bool is_fragment(const struct iphdr *ip)
{
	return ip->frag_off & bpf_htons(IPV4_FRAGMENT_MASK);
}

/* Behind an IPv6 header. */
static __always_inline struct ipv6hdr *parse_ipv6(struct cursor *c)
{
	struct ipv6hdr *ip = c->pos;

	if ((void *)(ip + 1) > c->end || ip->version != 6)
		return NULL;
	c->pos = ip + 1;
	c->left = bpf_ntohs(ip->payload_len);
	return ip;
}

/* Behind the extension headers, whose protocols go to `proto`; whether a transport header may follow. */
static __always_inline bool skip_extensions(struct cursor *c, __u8 *proto)
{
#pragma unroll
	for (int i = 0; i < MAX_IPV6_EXTENSIONS; i++) {
		struct ipv6_opt_hdr *ext = c->pos;
		bool is_later = false;
		__u64 len;

		if (c->pos + sizeof(struct fragment_hdr) > c->end)
			return false;
		switch (*proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			len = (ext->hdrlen + 1) * 8;
			break;
		case IPPROTO_FRAGMENT:
			is_later = ((struct fragment_hdr *)c->pos)->frag_off & bpf_htons(IPV6_OFFSET_MASK);
			len = sizeof(struct fragment_hdr);
			break;
		case IPPROTO_AH:
			len = (ext->hdrlen + 2) * 4;
			if (len < 12)
				return false;
			break;
		default:
			return true;
		}
		if (len > c->left || c->pos + len > c->end)
			return false;
		*proto = ext->nexthdr;
		if (is_later) {
			c->left = 0;	/* for headers */
			return false;
		}
		c->pos += len;
		c->left -= len;
		if (*proto == IPPROTO_TCP || *proto == IPPROTO_UDP)
			return true;
	}
	return true;
}

static __always_inline struct tcphdr *parse_tcp(struct cursor *c)
{
	struct tcphdr *tcp = c->pos;
	__u64 len;

	if ((void *)(tcp + 1) > c->end)
		return NULL;
	len = tcp->doff * 4;
	if (len < sizeof(*tcp) || len > c->left || c->pos + len > c->end)
		return NULL;
	return tcp;
}

static __always_inline struct udphdr *parse_udp(struct cursor *c)
{
	struct udphdr *udp = c->pos;

	/* A length beyond the packet is fine: the first fragment of a datagram has that of the whole. */
	if ((void *)(udp + 1) > c->end || c->left < sizeof(*udp) || bpf_ntohs(udp->len) < sizeof(*udp))
		return NULL;
	return udp;
}

/* The ports of TCP or UDP. */
static __always_inline union l4_ports *parse_ports(struct cursor *c, __u8 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
		return (void *)parse_tcp(c);
	case IPPROTO_UDP:
		return (void *)parse_udp(c);
	}
	return NULL;
}

/* The same over IPv6, behind its extension headers. */
static __always_inline union l4_ports *parse_ports6(struct cursor *c, __u8 *proto)
{
	if (*proto != IPPROTO_TCP && *proto != IPPROTO_UDP && !skip_extensions(c, proto))
		return NULL;
	return parse_ports(c, *proto);
}

/* ICMP or ICMPv6. */
static __always_inline struct icmp_hdr *parse_icmp(struct cursor *c)
{
	struct icmp_hdr *icmp = c->pos;

	return (void *)(icmp + 1) <= c->end && c->left >= sizeof(*icmp) ? icmp : NULL;
}

/* ICMPv6 133 to 137; what has passed a router, and lost of its hop limit, cannot be meant for this link. */
static __always_inline bool is_neighbour_discovery(const struct ipv6hdr *ip, const struct icmp_hdr *icmp6)
{
	return icmp6->type >= 133 && icmp6->type <= 137 && ip->hop_limit == 255;
}

/* An IPv4 address as IPv6 writes it, ::ffff:a.b.c.d. */
static __always_inline struct addr v4_mapped(__be32 addr)
{
	return (struct addr){ .low = (__u64)addr << 32 | bpf_htonl(0xffff) };
}

static __always_inline struct addr addr_of(const struct in6_addr *addr)
{
	/* The kernel lets eBPF read 8 bytes of a packet from anywhere. */
	return *(const struct addr *)addr;
}

#endif
