/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Traffic policer, the hand-written twin of policer.efsm: each source may send a packet every INTERVAL_US, and BURST of
 * them at once.
 *
 *   clang -O2 -g -target bpf -c policer.bpf.c [-DOUT=1 -DBURST=10 -DLOCKED ...]
 */
#include "../parse.bpf.h"

/* OUT is the port where packets leave; without it they are passed on. */
#ifndef INTERVAL_US
#define INTERVAL_US 1000
#endif
#ifndef BURST
#define BURST 100
#endif

/* What a full bucket has behind now, and ahead of it once a packet has taken a token. */
#define SPAN_US ((BURST - 1) * INTERVAL_US)
/* Times of 32 bits wrap: a bucket that was full for 10 s is forgotten before its window seems to lie ahead. */
#define FORGET_NS ((BURST + 1) * INTERVAL_US * 1000ULL + 10000000000ULL)

_Static_assert(FORGET_NS / 1000 < 1ULL << 31, "a time is taken for one of the future after half a wrap");

/* The tokens of a source, as a window of time that spans BURST intervals: there are as many as it has behind now. */
struct bucket {
	__u64 deadline;		/* when it is forgotten */
	__u32 tmin;		/* in microseconds: empty up to here */
	__u32 tmax;		/* full from here on */
#ifdef LOCKED
	struct bpf_spin_lock lock;
#endif
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct addr);
	__type(value, struct bucket);
} buckets SEC(".maps");

#ifdef OUT
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");
#endif

static __always_inline int forward(void)
{
#ifdef OUT
	return bpf_redirect_map(&out_ports, OUT, XDP_ABORTED);
#else
	return XDP_PASS;
#endif
}

/* Whether `a` is later than `b`, on a clock that wraps. */
static __always_inline bool is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* Takes a token of a bucket; false where it has none. */
static __always_inline bool take_token(struct bucket *bucket, __u64 now_ns)
{
	__u32 now = now_ns / 1000;

	bucket->deadline = now_ns + FORGET_NS;
	if (is_after(now, bucket->tmax)) {
		bucket->tmin = now - SPAN_US;
		bucket->tmax = now + INTERVAL_US;
		return true;
	}
	if (!is_after(now, bucket->tmin))
		return false;
	bucket->tmin += INTERVAL_US;
	bucket->tmax += INTERVAL_US;
	return true;
}

/* With LOCKED, several CPUs may take tokens of one bucket at a time. */
#ifdef LOCKED
#define LOCK(bucket) bpf_spin_lock(&(bucket)->lock)
#define UNLOCK(bucket) bpf_spin_unlock(&(bucket)->lock)
#else
#define LOCK(bucket)
#define UNLOCK(bucket)
#endif

/* Takes a token of the source, or drops the packet where there is none. */
static __always_inline int police(const struct addr *src)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, src);
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 now = now_ns / 1000;
	bool has_token;

	if (bucket && now_ns >= bucket->deadline) {
		bpf_map_delete_elem(&buckets, src);
		bucket = NULL;
	}
	if (!bucket) {
		struct bucket full = {
			.deadline = now_ns + FORGET_NS,
			.tmin = now - SPAN_US,
			.tmax = now + INTERVAL_US,
		};

		bpf_map_update_elem(&buckets, src, &full, BPF_NOEXIST);
		return forward();
	}
	LOCK(bucket);
	has_token = take_token(bucket, now_ns);
	UNLOCK(bucket);
	return has_token ? forward() : XDP_DROP;
}

SEC("xdp")
int policer(struct xdp_md *ctx)
{
	struct icmp_hdr *icmp6;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;
	struct cursor c;
	struct addr src;
	__u8 proto;

	switch (parse_link(ctx, &c)) {
	case bpf_htons(ETH_P_IP):
		ip4 = parse_ipv4(&c);
		if (!ip4)
			return forward();
		src = v4_mapped(ip4->saddr);
		break;
	case bpf_htons(ETH_P_IPV6):
		ip6 = parse_ipv6(&c);
		if (!ip6)
			return forward();
		proto = ip6->nexthdr;
		if (skip_extensions(&c, &proto) && proto == IPPROTO_ICMPV6) {
			icmp6 = parse_icmp(&c);
			if (icmp6 && is_neighbour_discovery(ip6, icmp6))
				return forward();
		}
		src = addr_of(&ip6->saddr);
		break;
	default:
		return forward();
	}
	return police(&src);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
