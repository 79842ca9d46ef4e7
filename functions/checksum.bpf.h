/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Checksums that follow a change, for the hand-written twins: RFC 1624, equation 3. A wrong checksum stays wrong.
 */
#ifndef FLOWLOOM_CHECKSUM_BPF_H
#define FLOWLOOM_CHECKSUM_BPF_H

#include <linux/tcp.h>
#include <linux/udp.h>

#include "parse.bpf.h"

/* What a sum gains where `from` becomes `to`. */
static __always_inline __u32 change16(__be16 from, __be16 to)
{
	return (__u16)~from + to;
}

static __always_inline __u32 change32(__be32 from, __be32 to)
{
	return (__u16)~from + (__u16)(~from >> 16) + (__u16)to + (to >> 16);
}

static __always_inline __u32 change128(const struct in6_addr *from, const struct in6_addr *to)
{
	__u32 change = 0;

#pragma unroll
	for (int i = 0; i < 4; i++)
		change += change32(from->in6_u.u6_addr32[i], to->in6_u.u6_addr32[i]);
	return change;
}

static __always_inline __sum16 changed(__sum16 check, __u32 change)
{
	__u32 sum = (__u16)~check + change;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The checksum of TCP or UDP, which covers the addresses too. A UDP checksum of 0 says that there is none. */
static __always_inline void change_l4(const struct headers *h, __u32 change)
{
	struct udphdr *udp = (void *)h->ports;

	if (h->tcp)
		h->tcp->check = changed(h->tcp->check, change);
	else if (udp->check)
		udp->check = changed(udp->check, change) ?: 0xffff;
}

#endif
