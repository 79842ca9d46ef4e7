/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Layer 4 load balancer, after Katran: packets for a virtual service go, inside a tunnel, to the real server that a ring of
 * consistent hashing gives their flow, and stay with it while the flow is remembered, also when the ring changes.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c katran.bpf.c [-DRING_SIZE=65537 -DMAX_SERVICES=16]
 */
#include "../encap.bpf.h"

/* Places on a service's ring; a prime number spreads best. */
#ifndef RING_SIZE
#define RING_SIZE 65537
#endif
#ifndef MAX_SERVICES
#define MAX_SERVICES 16
#endif
#ifndef MAX_REALS
#define MAX_REALS 4096
#endif
/* Flows that are remembered. */
#ifndef FLOWS
#define FLOWS 65536
#endif
/* UDP has no end: after so long a flow may go elsewhere. */
#ifndef UDP_QUIET_NS
#define UDP_QUIET_NS 30000000000ULL
#endif

#define TUNNEL_TTL 64
#define GUE_PORT 6080

#define ICMP_UNREACHABLE 3
#define ICMP6_UNREACHABLE 1
#define ICMP6_TOO_BIG 2

/* A service as its users see it; port 0 is every port that has no service of its own. */
struct service_key {
	struct addr addr;	/* IPv4 as IPv6 writes it */
	__u32 port;
	__u32 proto;
};

enum flag {
	GUE = 1,		/* IP in UDP rather than IP in IP */
	ONE_SERVER = 2,		/* all flows of a user to the service go to one server */
	NO_MEMORY = 4,		/* the ring alone decides */
};

struct service {
	__u32 number;		/* which ring and which counters */
	__u32 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* The rings, one after the other: at each place the number of a real server; 0 is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES * RING_SIZE);
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

/* The real servers; zeros where there is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_REALS);
	__type(key, __u32);
	__type(value, struct addr);
} reals SEC(".maps");

struct flow_key {
	struct addr source;
	struct addr dest;
	__be16 source_port;
	__be16 dest_port;
	__u32 proto;
};

struct memory {
	__u64 used_ns;
	__u32 real;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct memory);
} flows SEC(".maps");

struct config {
	struct addr source4;	/* of tunnels over IPv4: its lower 16 bits are the flow's */
	struct addr source6;	/* of tunnels over IPv6: its lower 32 bits are the flow's */
	struct mac gateway;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct counts {
	__u64 packets;
	__u64 bytes;		/* of packets as they came */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct counts);
} by_service SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_REALS);
	__type(key, __u32);
	__type(value, struct counts);
} by_real SEC(".maps");

enum event { REMEMBERED, FROM_RING, NEW_CONNECTION, NO_REAL, ICMP_ERROR, EVENTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, __u32);
	__type(value, __u64);
} events SEC(".maps");

/* What is known of a packet. */
struct packet {
	struct flow_key flow;
	__u64 len;		/* of the IP packet */
	bool is_v4;
	bool is_syn;
	bool is_error;
};

static __always_inline void count_event(__u32 event)
{
	__u64 *times = bpf_map_lookup_elem(&events, &event);

	if (times)
		*times += 1;
}

static __always_inline void count_bytes(struct counts *counts, __u64 bytes)
{
	if (counts) {
		counts->packets++;
		counts->bytes += bytes;
	}
}

static __always_inline __u32 turned(__u32 word, int by)
{
	return word << by | word >> (32 - by);
}

/* Jenkins's hash lookup3 of five words: of who sends, and of the ports. */
static __always_inline __u32 hash_flow(const struct flow_key *flow)
{
	__u32 a, b, c;

	a = b = c = 0xdeadbeef + 5 * sizeof(__u32);
	a += (__u32)flow->source.high;
	b += flow->source.high >> 32;
	c += (__u32)flow->source.low;

	a -= c; a ^= turned(c, 4); c += b;
	b -= a; b ^= turned(a, 6); a += c;
	c -= b; c ^= turned(b, 8); b += a;
	a -= c; a ^= turned(c, 16); c += b;
	b -= a; b ^= turned(a, 19); a += c;
	c -= b; c ^= turned(b, 4); b += a;

	a += flow->source.low >> 32;
	b += flow->source_port | (__u32)flow->dest_port << 16;

	c ^= b; c -= turned(b, 14);
	a ^= c; a -= turned(c, 11);
	b ^= a; b -= turned(a, 25);
	c ^= b; c -= turned(b, 16);
	a ^= c; a -= turned(c, 4);
	b ^= a; b -= turned(a, 14);
	c ^= b; c -= turned(b, 24);
	return c;
}

/* The ports of a flow of TCP or UDP, and whether it begins; false where they are not there. */
static __always_inline bool take_ports(struct cursor *c, struct packet *p)
{
	union l4_ports *ports = parse_ports(c, p->flow.proto);

	if (!ports)
		return false;
	if (p->flow.proto == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)ports;

		if ((void *)(tcp + 1) > c->end)
			return false;
		p->is_syn = tcp->syn && !tcp->ack;
	}
	p->flow.source_port = ports->source;
	p->flow.dest_port = ports->dest;
	return true;
}

/* The ports of a packet that an ICMP error quotes: it went the other way, and only 8 bytes of it need be there. */
static __always_inline bool take_quoted_ports(struct cursor *c, struct packet *p)
{
	union l4_ports *ports = c->pos;

	if ((void *)(ports + 1) > c->end || (p->flow.proto != IPPROTO_TCP && p->flow.proto != IPPROTO_UDP))
		return false;
	p->flow.source_port = ports->dest;
	p->flow.dest_port = ports->source;
	p->is_error = true;
	return true;
}

/* XDP_TX where the packet may be one for a service; otherwise what becomes of it. */
static __always_inline int parse4(struct cursor *c, struct packet *p)
{
	struct iphdr *ip = c->pos, *quoted;
	struct icmp_hdr *icmp;

	if ((void *)(ip + 1) > c->end || ip->version != 4)
		return XDP_DROP;
	/* Options and fragments could lead the same flow to different servers. */
	if (ip->ihl != 5 || is_fragment(ip))
		return XDP_DROP;
	p->len = bpf_ntohs(ip->tot_len);
	if (p->len < sizeof(*ip) || !fits(ip, c->end, p->len))
		return XDP_DROP;
	c->pos = ip + 1;
	c->left = p->len - sizeof(*ip);
	p->is_v4 = true;
	p->flow.source = v4_mapped(ip->saddr);
	p->flow.dest = v4_mapped(ip->daddr);
	p->flow.proto = ip->protocol;
	if (ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP)
		return take_ports(c, p) ? XDP_TX : XDP_DROP;
	if (ip->protocol != IPPROTO_ICMP)
		return XDP_PASS;
	icmp = parse_icmp(c);
	if (!icmp)
		return XDP_DROP;
	if (icmp->type != ICMP_UNREACHABLE)
		return XDP_PASS;
	quoted = (void *)(icmp + 1);
	if ((void *)(quoted + 1) > c->end || quoted->ihl != 5 || is_later_fragment(quoted))
		return XDP_DROP;
	c->pos = quoted + 1;
	p->flow.source = v4_mapped(quoted->daddr);
	p->flow.dest = v4_mapped(quoted->saddr);
	p->flow.proto = quoted->protocol;
	return take_quoted_ports(c, p) ? XDP_TX : XDP_DROP;
}

static __always_inline int parse6(struct cursor *c, struct packet *p)
{
	struct ipv6hdr *ip = parse_ipv6(c), *quoted;
	struct icmp_hdr *icmp;

	if (!ip)
		return XDP_DROP;
	p->len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (!fits(ip, c->end, p->len))
		return XDP_DROP;
	p->flow.source = addr_of(&ip->saddr);
	p->flow.dest = addr_of(&ip->daddr);
	p->flow.proto = ip->nexthdr;
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return XDP_DROP;
	if (ip->nexthdr == IPPROTO_TCP || ip->nexthdr == IPPROTO_UDP)
		return take_ports(c, p) ? XDP_TX : XDP_DROP;
	if (ip->nexthdr != IPPROTO_ICMPV6)
		return XDP_PASS;
	icmp = parse_icmp(c);
	if (!icmp)
		return XDP_DROP;
	if (icmp->type != ICMP6_UNREACHABLE && icmp->type != ICMP6_TOO_BIG)
		return XDP_PASS;
	quoted = (void *)(icmp + 1);
	if ((void *)(quoted + 1) > c->end)
		return XDP_DROP;
	c->pos = quoted + 1;
	p->flow.source = addr_of(&quoted->daddr);
	p->flow.dest = addr_of(&quoted->saddr);
	p->flow.proto = quoted->nexthdr;
	return take_quoted_ports(c, p) ? XDP_TX : XDP_DROP;
}

/* The service that a flow is for; where a user has one server there, all the user's flows are one from here on. */
static __always_inline struct service *find_service(struct flow_key *flow)
{
	struct service_key key = { .addr = flow->dest, .proto = flow->proto };
	struct service *service;

	key.port = bpf_ntohs(flow->dest_port);
	service = bpf_map_lookup_elem(&services, &key);
	if (!service) {
		key.port = 0;
		service = bpf_map_lookup_elem(&services, &key);
	}
	if (service && service->flags & ONE_SERVER) {
		flow->source_port = 0;
		flow->dest_port = bpf_htons(key.port);
	}
	return service;
}

/* The server that a flow is remembered to go to; 0 where it is not, or should not be looked for. */
static __always_inline __u32 remembered(const struct packet *p)
{
	struct memory *memory;
	__u64 now;

	if (p->is_syn) {
		count_event(NEW_CONNECTION);
		return 0;
	}
	memory = bpf_map_lookup_elem(&flows, &p->flow);
	if (!memory)
		return 0;
	if (p->flow.proto == IPPROTO_UDP) {
		now = bpf_ktime_get_ns();
		if ((__s64)(now - memory->used_ns) >= (__s64)UDP_QUIET_NS)
			return 0;
		/* An error is no packet of the flow, which may have ended. */
		if (!p->is_error)
			memory->used_ns = now;
	}
	count_event(REMEMBERED);
	return memory->real;
}

static __always_inline __u32 from_ring(const struct packet *p, const struct service *service, __u32 hash)
{
	__u32 place = service->number * RING_SIZE + hash % RING_SIZE, *real;

	real = bpf_map_lookup_elem(&rings, &place);
	if (!real || !*real)
		return 0;
	count_event(FROM_RING);
	if (!(service->flags & NO_MEMORY) && !p->is_error) {
		struct memory memory = { .real = *real };

		if (p->flow.proto == IPPROTO_UDP)
			memory.used_ns = bpf_ktime_get_ns();
		bpf_map_update_elem(&flows, &p->flow, &memory, BPF_ANY);
	}
	return *real;
}

static __always_inline void write_gue(struct udphdr *udp, __u32 hash, __u16 len)
{
	/* The source port is the flow's, so that networks on the way spread flows. */
	udp->source = bpf_htons(0xc000 | (hash & 0x3fff));
	udp->dest = bpf_htons(GUE_PORT);
	udp->len = bpf_htons(len + sizeof(*udp));
	udp->check = 0;		/* [RFC 6935] for IPv6 */
}

static __always_inline int send_over_ipv4(struct xdp_md *ctx, const struct config *config, __be32 to, __u32 hash,
					  __u16 len, bool gue)
{
	__be32 from = (v4_of(&config->source4) & bpf_htonl(0xffff0000)) | bpf_htonl(hash & 0xffff);
	struct iphdr *ip;

	ip = grow(ctx, gue ? sizeof(*ip) + sizeof(struct udphdr) : sizeof(*ip), &config->gateway, bpf_htons(ETH_P_IP));
	if (!ip || (void *)(ip + 1) + sizeof(struct udphdr) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (gue) {
		write_ipv4(ip, from, to, IPPROTO_UDP, TUNNEL_TTL, len + sizeof(struct udphdr));
		write_gue((void *)(ip + 1), hash, len);
	} else {
		write_ipv4(ip, from, to, IPPROTO_IPIP, TUNNEL_TTL, len);
	}
	return XDP_TX;
}

static __always_inline int send_over_ipv6(struct xdp_md *ctx, const struct config *config, const struct addr *to,
					  __u32 hash, __u16 len, bool gue, bool is_v4)
{
	struct addr from = config->source6;
	struct ipv6hdr *ip;

	from.low = (from.low & 0xffffffff) | (__u64)bpf_htonl(hash) << 32;
	ip = grow(ctx, gue ? sizeof(*ip) + sizeof(struct udphdr) : sizeof(*ip), &config->gateway,
		  bpf_htons(ETH_P_IPV6));
	if (!ip || (void *)(ip + 1) + sizeof(struct udphdr) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (gue) {
		write_ipv6(ip, &from, to, IPPROTO_UDP, TUNNEL_TTL, len + sizeof(struct udphdr));
		write_gue((void *)(ip + 1), hash, len);
	} else {
		write_ipv6(ip, &from, to, is_v4 ? IPPROTO_IPIP : IPPROTO_IPV6, TUNNEL_TTL, len);
	}
	return XDP_TX;
}

SEC("xdp")
int katran(struct xdp_md *ctx)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct cursor c = { .pos = eth + 1, .end = (void *)(long)ctx->data_end };
	__u32 zero = 0, hash, number, real = 0;
	struct service *service;
	struct config *config;
	struct packet p = {};
	struct addr *server;
	int verdict;
	bool gue;

	if (c.pos > c.end)
		return XDP_DROP;
	if (eth->type == bpf_htons(ETH_P_IP))
		verdict = parse4(&c, &p);
	else if (eth->type == bpf_htons(ETH_P_IPV6))
		verdict = parse6(&c, &p);
	else
		return XDP_PASS;
	if (verdict != XDP_TX)
		return verdict;

	service = find_service(&p.flow);
	if (!service)
		return XDP_PASS;
	config = bpf_map_lookup_elem(&configs, &zero);
	if (!config)
		return XDP_DROP;
	if (p.is_error)
		count_event(ICMP_ERROR);
	hash = hash_flow(&p.flow);
	if (!(service->flags & NO_MEMORY))
		real = remembered(&p);
	if (!real)
		real = from_ring(&p, service, hash);
	server = real ? bpf_map_lookup_elem(&reals, &real) : NULL;
	/* There is no way for IPv6 to a server of IPv4. */
	if (!server || !(server->high | server->low) || (is_v4(server) && !p.is_v4)) {
		count_event(NO_REAL);
		return XDP_DROP;
	}

	number = service->number;
	count_bytes(bpf_map_lookup_elem(&by_service, &number), p.len);
	count_bytes(bpf_map_lookup_elem(&by_real, &real), p.len);
	gue = service->flags & GUE;
	if (!is_v4(server))
		return send_over_ipv6(ctx, config, server, hash, p.len, gue, p.is_v4);
	return send_over_ipv4(ctx, config, v4_of(server), hash, p.len, gue);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
