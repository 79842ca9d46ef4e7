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

#define IN6(...) IN6_OF(__VA_ARGS__)
#define IN6_OF(a, b, c, d) \
	{ .in6_u.u6_addr32 = { bpf_htonl(a), bpf_htonl(b), bpf_htonl(c), bpf_htonl(d) } }

/* What a packet is to the balancer. */
enum kind { OTHER, REQUEST, RESPONSE };

struct client {
	struct in6_addr addr;
	__be16 port;
	__u16 padding;
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

static __always_inline bool is_equal(const struct in6_addr *a, const struct in6_addr *b)
{
	/* In IPv6 headers addresses need not lie at a multiple of 8 bytes. */
	return a->in6_u.u6_addr32[0] == b->in6_u.u6_addr32[0] && a->in6_u.u6_addr32[1] == b->in6_u.u6_addr32[1] &&
	       a->in6_u.u6_addr32[2] == b->in6_u.u6_addr32[2] && a->in6_u.u6_addr32[3] == b->in6_u.u6_addr32[3];
}

static __always_inline enum kind kind_of(const struct headers *h, __u32 in_port)
{
	struct in6_addr service6 = IN6(SERVICE6), server1v6 = IN6(SERVER1V6), server2v6 = IN6(SERVER2V6);

	if (!h->tcp)
		return OTHER;
	if (in_port == CLIENTS) {
		if (h->tcp->dest != bpf_htons(L4PORT))
			return OTHER;
		if (h->ip4 && h->ip4->daddr == bpf_htonl(SERVICE))
			return REQUEST;
		if (h->ip6 && is_equal(&h->ip6->daddr, &service6))
			return REQUEST;
	} else if (in_port == SERVERS) {
		if (h->tcp->source != bpf_htons(L4PORT))
			return OTHER;
		if (h->ip4 && (h->ip4->saddr == bpf_htonl(SERVER1) || h->ip4->saddr == bpf_htonl(SERVER2)))
			return RESPONSE;
		if (h->ip6 && (is_equal(&h->ip6->saddr, &server1v6) || is_equal(&h->ip6->saddr, &server2v6)))
			return RESPONSE;
	}
	return OTHER;
}

/* The number of a connection: the next one for a new connection. */
static __always_inline __u32 turn_of(const struct headers *h)
{
	struct client client = { .port = h->ports->source };
	struct binding *binding;
	__u64 *deadline;
	__u64 now = 0;
	__u32 turn = 0;

	if (h->ip4)
		client.addr = v4_mapped(h->ip4->saddr);
	else if (h->ip6)
		client.addr = h->ip6->saddr;

	deadline = bpf_map_lookup_elem(&numbered, &client);
	if (deadline) {
		now = bpf_ktime_get_ns();
		if (now >= *deadline) {
			bpf_map_delete_elem(&numbered, &client);
			deadline = NULL;
		}
	}
	if (deadline) {
		*deadline = now + QUIET_NS;
	} else {
		__u64 end = (now = now ?: bpf_ktime_get_ns()) + QUIET_NS;

		if (!bpf_map_update_elem(&numbered, &client, &end, BPF_NOEXIST))
			counter++;
		turn = counter;
	}

	binding = bpf_map_lookup_elem(&bindings, &client);
	if (binding && now >= binding->deadline) {
		bpf_map_delete_elem(&bindings, &client);
		binding = NULL;
	}
	if (!binding) {
		struct binding mine = { .deadline = now + QUIET_NS, .turn = turn };

		bpf_map_update_elem(&bindings, &client, &mine, BPF_NOEXIST);
		return turn;
	}
	binding->deadline = now + QUIET_NS;
	return binding->turn;
}

/* Gives the packet another address at `addr`, in IPv4. */
static __always_inline void rewrite4(const struct headers *h, __be32 *addr, __be32 to)
{
	__u32 change = change32(*addr, to);

	h->ip4->check = changed(h->ip4->check, change);
	h->tcp->check = changed(h->tcp->check, change);
	*addr = to;
}

/* The same in IPv6. */
static __always_inline void rewrite6(const struct headers *h, struct in6_addr *addr, const struct in6_addr *to)
{
	h->tcp->check = changed(h->tcp->check, change128(addr, to));
	*addr = *to;
}

SEC("xdp")
int server_load_balancer(struct xdp_md *ctx)
{
	struct headers h = parse(ctx);
	__u32 in_port = ctx->ingress_ifindex;

	switch (kind_of(&h, in_port)) {
	case REQUEST: {
		bool is_second = turn_of(&h) & 1;

		if (h.ip4) {
			rewrite4(&h, &h.ip4->daddr, is_second ? bpf_htonl(SERVER2) : bpf_htonl(SERVER1));
		} else if (h.ip6) {
			struct in6_addr server1v6 = IN6(SERVER1V6), server2v6 = IN6(SERVER2V6);

			rewrite6(&h, &h.ip6->daddr, is_second ? &server2v6 : &server1v6);
		}
		return forward(SERVERS);
	}
	case RESPONSE:
		if (h.ip4) {
			rewrite4(&h, &h.ip4->saddr, bpf_htonl(SERVICE));
		} else if (h.ip6) {
			struct in6_addr service6 = IN6(SERVICE6);

			rewrite6(&h, &h.ip6->saddr, &service6);
		}
		return forward(CLIENTS);
	default:
		break;
	}
	/* All other traffic passes as it is. */
	if (in_port == CLIENTS)
		return forward(SERVERS);
	if (in_port == SERVERS)
		return forward(CLIENTS);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
