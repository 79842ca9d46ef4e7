/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Answers IPv4 packets that are too large and must not be fragmented with ICMP "fragmentation needed", after Linux's sample
 * xdp_adjust_tail: the packet is cut short from behind, and headers are put in front of what is left.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c adjust_tail.bpf.c [-DLARGEST=1400]
 */
#include "../../checksum.bpf.h"
#include "../swap.bpf.h"

#define ICMP_UNREACHABLE 3
#define ICMP_FRAGMENTATION_NEEDED 4
#define ICMP_SOURCE_QUENCH 4
#define ICMP_REDIRECT 5
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12

#define IPV4_DO_NOT_FRAGMENT 0x4000	/* of iphdr.frag_off */

/* The largest frame that passes, where map `limit` does not say so. */
#ifndef LARGEST
#define LARGEST 600
#endif

/* A link that carries IP carries packets of 68 bytes [RFC 791]; what `limit` says below that is no limit. */
#define SMALLEST (sizeof(struct eth_hdr) + 68)

#define ANSWER_TTL 64

/* So much of the packet is sent back: its IP header, however long, and at least 8 bytes behind it [RFC 792]. */
#define QUOTED 84
#define GROWTH (sizeof(struct iphdr) + sizeof(struct icmp_hdr))
#define KEPT (sizeof(struct eth_hdr) + QUOTED)

/* How many answers were sent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} answers SEC(".maps");

/* The largest frame; less than SMALLEST for what the program was built with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} limit SEC(".maps");

static __always_inline __sum16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void count_answer(void)
{
	__u64 *count;
	__u32 zero = 0;

	count = bpf_map_lookup_elem(&answers, &zero);
	if (count)
		*count += 1;
}

static __always_inline bool is_error(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH || type == ICMP_REDIRECT ||
	       type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER_PROBLEM;
}

/* Not zero, not the loopback's, neither multicast nor of class E with the broadcast. */
static __always_inline bool is_one_host(__be32 addr)
{
	__u8 net = bpf_ntohl(addr) >> 24;

	return net && net != 127 && net < 224;
}

/* Whether an error may be sent about a packet [RFC 1122 3.2.2]; `c` stands behind its IP header. */
static __always_inline bool may_answer(struct cursor *c, const struct eth_hdr *eth, const struct iphdr *ip)
{
	struct icmp_hdr *icmp;

	/* An answer goes from one host to another. */
	if ((eth->dest[0] | eth->source[0]) & 1 || !is_one_host(ip->daddr) || !is_one_host(ip->saddr))
		return false;
	if (is_later_fragment(ip))
		return false;
	if (ip->protocol != IPPROTO_ICMP)
		return true;
	icmp = parse_icmp(c);
	return icmp && !is_error(icmp->type);
}

/* Makes the answer of a frame whose bytes have been cut to KEPT. */
static __always_inline int answer(struct xdp_md *ctx, __u32 mtu)
{
	struct eth_hdr *eth, *old;
	struct icmp_hdr *icmp;
	struct iphdr *ip, *quoted;

	if (bpf_xdp_adjust_head(ctx, -(int)GROWTH))
		return XDP_DROP;
	eth = (void *)(long)ctx->data;
	ip = (void *)(eth + 1);
	icmp = (void *)(ip + 1);
	quoted = (void *)(icmp + 1);
	if ((void *)quoted + QUOTED > (void *)(long)ctx->data_end)
		return XDP_DROP;

	old = (void *)eth + GROWTH;
	*(struct mac *)eth->dest = *(struct mac *)old->source;
	*(struct mac *)eth->source = *(struct mac *)old->dest;
	eth->type = bpf_htons(ETH_P_IP);

	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = 0;
	ip->tot_len = bpf_htons(GROWTH + QUOTED);
	ip->id = 0;
	ip->frag_off = bpf_htons(IPV4_DO_NOT_FRAGMENT);
	ip->ttl = ANSWER_TTL;
	ip->protocol = IPPROTO_ICMP;
	ip->check = 0;
	ip->saddr = quoted->daddr;
	ip->daddr = quoted->saddr;
	ip->check = fold(bpf_csum_diff(0, 0, (void *)ip, sizeof(*ip), 0));

	icmp->type = ICMP_UNREACHABLE;
	icmp->code = ICMP_FRAGMENTATION_NEEDED;
	icmp->checksum = 0;
	icmp->id = 0;
	icmp->sequence = bpf_htons(mtu);	/* where others have a number, this has the largest packet [RFC 1191] */
	icmp->checksum = fold(bpf_csum_diff(0, 0, (void *)icmp, sizeof(*icmp) + QUOTED, 0));
	count_answer();
	return XDP_TX;
}

SEC("xdp")
int adjust_tail(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct cursor c = { .pos = eth + 1, .end = end };
	__u32 len = end - (void *)eth, largest = LARGEST, zero = 0;
	__u32 *given = bpf_map_lookup_elem(&limit, &zero);
	struct iphdr *ip;

	if (given && *given >= SMALLEST)
		largest = *given;
	/* An answer must be smaller than what it answers. */
	if (len <= largest || len <= KEPT + GROWTH)
		return XDP_PASS;
	if (c.pos > end || eth->type != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	/* What may be fragmented is for who can do that. */
	ip = parse_ipv4(&c);
	if (!ip || !(ip->frag_off & bpf_htons(IPV4_DO_NOT_FRAGMENT)))
		return XDP_PASS;
	if (!may_answer(&c, eth, ip))
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, (int)KEPT - (int)len))
		return XDP_PASS;
	return answer(ctx, largest - sizeof(struct eth_hdr));
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
