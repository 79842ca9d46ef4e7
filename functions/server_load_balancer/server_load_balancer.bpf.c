/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Server load balancer, the hand-written twin of server_load_balancer.efsm: connections to one address go to two servers
 * in turn, each connection to one and the same.
 *
 *   clang -O2 -g -target bpf -c server_load_balancer.bpf.c [-DL4PORT=443 -DSERVICE=0xc0000250 ...]
 */
#include "../checksum.bpf.h"

/* The ports towards the clients and towards the servers. */
#ifndef CLIENTS
#define CLIENTS 1
#endif
#ifndef SERVERS
#define SERVERS 2
#endif
/* The address that clients know, 1.0.0.1, and the servers, 10.0.0.2 and 10.0.0.3. */
#ifndef SERVICE
#define SERVICE 0x01000001
#endif
#ifndef SERVER1
#define SERVER1 0x0a000002
#endif
#ifndef SERVER2
#define SERVER2 0x0a000003
#endif
/* The same in IPv6, in words of 32 bits: 2001:db8:1::1, 2001:db8:10::2, 2001:db8:10::3. */
#ifndef SERVICE6
#define SERVICE6 0x20010db8, 0x00010000, 0, 1
#endif
#ifndef SERVER1V6
#define SERVER1V6 0x20010db8, 0x00100000, 0, 2
#endif
#ifndef SERVER2V6
#define SERVER2V6 0x20010db8, 0x00100000, 0, 3
#endif
#ifndef L4PORT
#define L4PORT 80
#endif
#ifndef QUIET_NS
#define QUIET_NS 20000000000ULL
#endif

#define ADDR6(...) ADDR6_OF(__VA_ARGS__)
#define ADDR6_OF(a, b, c, d) \
	((struct addr){ bpf_cpu_to_be64((__u64)(a) << 32 | (b)), bpf_cpu_to_be64((__u64)(c) << 32 | (d)) })

struct client {
	struct addr addr;
	__u64 port;
};

/* Connections that have a number. As in the paper, who counts connections and who keeps their numbers are apart. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct client);
	__type(value, __u64);		/* when it is forgotten */
} numbered SEC(".maps");

struct binding {
	__u64 deadline;		/* when it is forgotten */
	__u64 turn;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct client);
	__type(value, struct binding);
} bindings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

static __u32 counter;

static __always_inline int forward(__u32 port)
{
	return bpf_redirect_map(&out_ports, port, XDP_ABORTED);
}

static __always_inline bool is_equal(const struct addr *a, const struct addr *b)
{
	return a->high == b->high && a->low == b->low;
}

/* The number of a connection: the next one for a new connection. */
static __always_inline __u32 turn_of(const struct client *client)
{
	struct binding *binding;
	__u64 *deadline;
	__u64 now = 0;
	__u32 turn = 0;

	deadline = bpf_map_lookup_elem(&numbered, client);
	if (deadline) {
		now = bpf_ktime_get_ns();
		if (now >= *deadline) {
			bpf_map_delete_elem(&numbered, client);
			deadline = NULL;
		}
	}
	if (deadline) {
		*deadline = now + QUIET_NS;
	} else {
		__u64 end = (now = now ?: bpf_ktime_get_ns()) + QUIET_NS;

		if (!bpf_map_update_elem(&numbered, client, &end, BPF_NOEXIST))
			counter++;
		turn = counter;
	}

	binding = bpf_map_lookup_elem(&bindings, client);
	if (binding && now >= binding->deadline) {
		bpf_map_delete_elem(&bindings, client);
		binding = NULL;
	}
	if (!binding) {
		struct binding mine = { .deadline = now + QUIET_NS, .turn = turn };

		bpf_map_update_elem(&bindings, client, &mine, BPF_NOEXIST);
		return turn;
	}
	binding->deadline = now + QUIET_NS;
	return binding->turn;
}

/* Gives the packet another address at `addr`, in IPv4. */
static __always_inline void rewrite4(struct iphdr *ip, struct tcphdr *tcp, __be32 *addr, __be32 to)
{
	__u64 change = change32(*addr, to);

	ip->check = changed(ip->check, change);
	tcp->check = changed(tcp->check, change);
	*addr = to;
}

/* The same in IPv6. */
static __always_inline void rewrite6(struct tcphdr *tcp, struct in6_addr *addr, struct addr to)
{
	tcp->check = changed(tcp->check, change128(addr, (void *)&to));
	*(struct addr *)addr = to;
}

static __always_inline int balance4(struct iphdr *ip, struct tcphdr *tcp, __u32 in_port)
{
	if (in_port == CLIENTS) {
		if (ip->daddr == bpf_htonl(SERVICE) && tcp->dest == bpf_htons(L4PORT)) {
			struct client client = { v4_mapped(ip->saddr), tcp->source };
			bool is_second = turn_of(&client) & 1;

			rewrite4(ip, tcp, &ip->daddr, is_second ? bpf_htonl(SERVER2) : bpf_htonl(SERVER1));
		}
		return forward(SERVERS);
	}
	if (in_port != SERVERS)
		return XDP_DROP;
	if (tcp->source == bpf_htons(L4PORT) &&
	    (ip->saddr == bpf_htonl(SERVER1) || ip->saddr == bpf_htonl(SERVER2)))
		rewrite4(ip, tcp, &ip->saddr, bpf_htonl(SERVICE));
	return forward(CLIENTS);
}

static __always_inline int balance6(struct ipv6hdr *ip, struct tcphdr *tcp, __u32 in_port)
{
	const struct addr service6 = ADDR6(SERVICE6), server1v6 = ADDR6(SERVER1V6), server2v6 = ADDR6(SERVER2V6);
	struct addr src = addr_of(&ip->saddr), dst = addr_of(&ip->daddr);

	if (in_port == CLIENTS) {
		if (is_equal(&dst, &service6) && tcp->dest == bpf_htons(L4PORT)) {
			struct client client = { src, tcp->source };

			rewrite6(tcp, &ip->daddr, turn_of(&client) & 1 ? server2v6 : server1v6);
		}
		return forward(SERVERS);
	}
	if (in_port != SERVERS)
		return XDP_DROP;
	if (tcp->source == bpf_htons(L4PORT) && (is_equal(&src, &server1v6) || is_equal(&src, &server2v6)))
		rewrite6(tcp, &ip->saddr, service6);
	return forward(CLIENTS);
}

SEC("xdp")
int server_load_balancer(struct xdp_md *ctx)
{
	__u32 in_port = ctx->ingress_ifindex;
	struct tcphdr *tcp;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;
	struct cursor c;
	__u8 proto;

	switch (parse_link(ctx, &c)) {
	case bpf_htons(ETH_P_IP):
		ip4 = parse_ipv4(&c);
		if (!ip4 || is_later_fragment(ip4) || ip4->protocol != IPPROTO_TCP)
			break;
		tcp = parse_tcp(&c);
		if (tcp)
			return balance4(ip4, tcp, in_port);
		break;
	case bpf_htons(ETH_P_IPV6):
		ip6 = parse_ipv6(&c);
		if (!ip6)
			break;
		proto = ip6->nexthdr;
		if (proto != IPPROTO_TCP && !skip_extensions(&c, &proto))
			break;
		tcp = proto == IPPROTO_TCP ? parse_tcp(&c) : NULL;
		if (tcp)
			return balance6(ip6, tcp, in_port);
		break;
	}
	/* All other traffic passes as it is. */
	if (in_port == CLIENTS)
		return forward(SERVERS);
	return in_port == SERVERS ? forward(CLIENTS) : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
