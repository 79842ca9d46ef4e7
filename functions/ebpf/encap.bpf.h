/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Headers in front of packets: room for them, and what stands in them. */
#ifndef FLOWLOOM_ENCAP_BPF_H
#define FLOWLOOM_ENCAP_BPF_H

#include "swap.bpf.h"
#include "../checksum.bpf.h"

static __always_inline __be32 v4_of(const struct addr *mapped)
{
	return mapped->low >> 32;
}

static __always_inline bool is_v4(const struct addr *addr)
{
	return !addr->high && (__u32)addr->low == bpf_htonl(0xffff);
}

/*
 * Whether a packet of `len` bytes is all there, and an outer header has room for its length and that of what comes in front.
 * What the frame has lost of it would be missing in the tunnel, too; lengths that go around would make it another packet.
 */
static __always_inline bool fits(const void *ip, const void *end, __u64 len)
{
	return len <= (__u64)(end - ip) && len <= 0xffff - sizeof(struct iphdr) - sizeof(struct udphdr);
}

/*
 * Makes room for `len` bytes behind the Ethernet header and writes that anew, from whom the packet was for to `hop`; what
 * stands behind it, NULL where there is no room.
 */
static __always_inline void *grow(struct xdp_md *ctx, int len, const struct mac *hop, __be16 type)
{
	struct eth_hdr *old, *eth;

	if (bpf_xdp_adjust_head(ctx, -len))
		return NULL;
	eth = (void *)(long)ctx->data;
	old = (void *)eth + len;
	if ((void *)(old + 1) > (void *)(long)ctx->data_end)
		return NULL;
	*(struct mac *)eth->source = *(struct mac *)old->dest;
	*(struct mac *)eth->dest = *hop;
	eth->type = type;
	return eth + 1;
}

/* An IPv4 header in front of `len` bytes. */
static __always_inline void write_ipv4(struct iphdr *ip, __be32 source, __be32 dest, __u8 proto, __u8 ttl, __u16 len)
{
	__u64 sum;

	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = 0;
	ip->tot_len = bpf_htons(len + sizeof(*ip));
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = ttl;
	ip->protocol = proto;
	ip->saddr = source;
	ip->daddr = dest;
	/* Nothing but what was written above stands in it, so that its words need not be read again. */
	sum = bpf_htons(0x4500) + (__u64)ip->tot_len + bpf_htons(ttl << 8 | proto);
	sum += (source & 0xffff) + (source >> 16) + (dest & 0xffff) + (dest >> 16);
	ip->check = changed(0xffff, sum);
}

/* An IPv6 header in front of `len` bytes. */
static __always_inline void write_ipv6(struct ipv6hdr *ip, const struct addr *source, const struct addr *dest,
				       __u8 proto, __u8 hop_limit, __u16 len)
{
	*(__be32 *)ip = bpf_htonl(0x60000000);
	ip->payload_len = bpf_htons(len);
	ip->nexthdr = proto;
	ip->hop_limit = hop_limit;
	*(struct addr *)&ip->saddr = *source;
	*(struct addr *)&ip->daddr = *dest;
}

#endif
