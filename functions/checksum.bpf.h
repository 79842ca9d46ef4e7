/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Checksums that follow a change, for the hand-written twins: RFC 1624, equation 3. A wrong checksum stays wrong.
 *
 * A change is a sum of 16-bit words that is not folded yet, in 64 bits: in less, clang would cut off what cannot be there.
 */
#ifndef FLOWLOOM_CHECKSUM_BPF_H
#define FLOWLOOM_CHECKSUM_BPF_H

#include "parse.bpf.h"

/* What a sum gains where `from` becomes `to`. */
static __always_inline __u64 change16(__be16 from, __be16 to)
{
	return (__u64)(__u16)~from + to;
}

static __always_inline __u64 change32(__be32 from, __be32 to)
{
	__u64 sum = (__u64)(__u32)~from + to;

	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __u64 change128(const struct in6_addr *from, const struct in6_addr *to)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)(__u32)~from->in6_u.u6_addr32[i] + to->in6_u.u6_addr32[i];
	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __sum16 changed(__sum16 check, __u64 change)
{
	__u64 sum = (__u16)~check + change;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

#endif
