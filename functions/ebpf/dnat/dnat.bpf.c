/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Dynamic source NAT that chooses addresses and ports by itself: the first packet of a flow from inside draws a public
 * address and port that is free for its other end, and both directions are rewritten from then on.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c dnat.bpf.c [-DINSIDE=3 -DQUIET_NS=60000000000ULL]
 */
#include "../flow.bpf.h"
#include "../../checksum.bpf.h"

/* The ports of the two networks. */
#ifndef INSIDE
#define INSIDE 1
#endif
#ifndef OUTSIDE
#define OUTSIDE 2
#endif
/* A port whose flow was silent for so long may be given to another flow. */
#ifndef QUIET_NS
#define QUIET_NS 300000000000ULL
#endif
#ifndef FLOWS
#define FLOWS 65536
#endif
/* So many ports are tried, one after the other, before the packet is dropped. */
#ifndef PROBES
#define PROBES 8
#endif
#define MAX_ADDRESSES 16

struct config {
	__u32 addresses;	/* how many of `publics` are there */
	__u32 first_port;
	__u32 ports;		/* how many, from the first */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, __u32);
	__type(value, __be32);
} publics SEC(".maps");

/* An end of a flow. */
struct end {
	__be32 addr;
	__be16 port;
	__u16 zero;
};

/* From a flow, as it looks inside, to the end it shows outside. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct end);
} shown SEC(".maps");

struct origin {
	struct end inside;
	__u64 used_ns;		/* when a packet of either direction came last */
};

/* Another CPU may have taken its time a little later, and written it before. */
static __always_inline bool is_quiet(const struct origin *origin, __u64 now)
{
	return (__s64)(now - origin->used_ns) >= (__s64)QUIET_NS;
}

/* From a flow, as its answers look outside, to the end it has inside. What has an entry here is taken. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct origin);
} origins SEC(".maps");

enum event { OPENED, TAKEN_OVER, NO_PORT, NO_ROOM, EVENTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, __u32);
	__type(value, __u64);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

static __always_inline void count(__u32 event)
{
	__u64 *times = bpf_map_lookup_elem(&events, &event);

	if (times)
		*times += 1;
}

/* The key that answers to `key` have once it shows `end`. */
static __always_inline struct flow_key answer_key(const struct flow_key *key, const struct end *end)
{
	return (struct flow_key){
		.source = key->dest,
		.dest = end->addr,
		.source_port = key->dest_port,
		.dest_port = end->port,
		.proto = key->proto,
	};
}

/* The key of the flow inside whose answers have `answer`. */
static __always_inline struct flow_key inside_key(const struct flow_key *answer, const struct end *inside)
{
	return (struct flow_key){
		.source = inside->addr,
		.dest = answer->source,
		.source_port = inside->port,
		.dest_port = answer->source_port,
		.proto = answer->proto,
	};
}

/* Finds an end for a new flow to show, and keeps it for that; whether there was one. */
static __always_inline bool open(const struct flow_key *key, __u64 now, struct end *end)
{
	struct origin mine = { .inside = { key->source, key->source_port, 0 }, .used_ns = now };
	__u32 zero = 0, draw, index, at;
	struct config *config = bpf_map_lookup_elem(&configs, &zero);
	__be32 *addr;

	if (!config || !config->addresses || !config->ports || (__u64)config->first_port + config->ports > 65536)
		goto no_port;
	draw = bpf_get_prandom_u32();
	index = draw % config->addresses;
	addr = bpf_map_lookup_elem(&publics, &index);
	if (!addr)
		goto no_port;
	end->addr = *addr;
	end->zero = 0;
	at = (draw >> 8) % config->ports;
#pragma unroll
	for (int i = 0; i < PROBES; i++) {
		struct flow_key answer;
		struct origin *other;

		end->port = bpf_htons(config->first_port + at);
		answer = answer_key(key, end);
		other = bpf_map_lookup_elem(&origins, &answer);
		if (!other) {
			if (bpf_map_update_elem(&origins, &answer, &mine, BPF_NOEXIST)) {
				count(NO_ROOM);
				return false;
			}
			goto found;
		}
		if (is_quiet(other, now)) {
			struct flow_key old = inside_key(&answer, &other->inside);

			bpf_map_delete_elem(&shown, &old);
			*other = mine;
			count(TAKEN_OVER);
			goto found;
		}
		at = at + 1 < config->ports ? at + 1 : 0;
	}
no_port:
	count(NO_PORT);
	return false;
found:
	if (bpf_map_update_elem(&shown, key, end, BPF_ANY)) {
		struct flow_key answer = answer_key(key, end);

		bpf_map_delete_elem(&origins, &answer);
		count(NO_ROOM);
		return false;
	}
	count(OPENED);
	return true;
}

/* Keeps the checksums of a packet right whose address and port change. */
static __always_inline bool follow(struct iphdr *ip, union l4_ports *ports, void *end, __u64 addr, __u64 port)
{
	ip->check = changed(ip->check, addr);
	if (ip->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)ports;

		if ((void *)(tcp + 1) > end)
			return false;
		tcp->check = changed(tcp->check, addr + port);
	} else {
		struct udphdr *udp = (void *)ports;

		if ((void *)(udp + 1) > end)
			return false;
		/* None stays none, and what is computed is never none [RFC 768]. */
		if (udp->check)
			udp->check = changed(udp->check, addr + port) ?: 0xffff;
	}
	return true;
}

static __always_inline int outward(struct iphdr *ip, union l4_ports *ports, void *data_end, const struct flow_key *key)
{
	struct end *known = bpf_map_lookup_elem(&shown, key), end;
	__u64 now = bpf_ktime_get_ns();
	struct origin *origin = NULL;

	if (known) {
		struct flow_key answer = answer_key(key, known);

		end = *known;
		origin = bpf_map_lookup_elem(&origins, &answer);
		/* Where its entry was taken away, the port may be another flow's by now. */
		if (origin && (origin->inside.addr != key->source || origin->inside.port != key->source_port))
			origin = NULL;
	}
	if (origin)
		origin->used_ns = now;
	else if (!open(key, now, &end))
		return XDP_DROP;
	if (!follow(ip, ports, data_end, change32(ip->saddr, end.addr), change16(ports->source, end.port)))
		return XDP_DROP;
	ip->saddr = end.addr;
	ports->source = end.port;
	return bpf_redirect_map(&out_ports, OUTSIDE, XDP_ABORTED);
}

static __always_inline int inward(struct iphdr *ip, union l4_ports *ports, void *data_end, const struct flow_key *key)
{
	struct origin *origin = bpf_map_lookup_elem(&origins, key);
	__u64 now = bpf_ktime_get_ns();
	struct end inside;

	if (!origin || is_quiet(origin, now))
		return XDP_DROP;
	origin->used_ns = now;
	inside = origin->inside;
	if (!follow(ip, ports, data_end, change32(ip->daddr, inside.addr), change16(ports->dest, inside.port)))
		return XDP_DROP;
	ip->daddr = inside.addr;
	ports->dest = inside.port;
	return bpf_redirect_map(&out_ports, INSIDE, XDP_ABORTED);
}

SEC("xdp")
int dnat(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	union l4_ports *ports;
	struct flow_key key;
	struct iphdr *ip;

	ip = parse_flow(ctx, &key, &ports);
	if (!ip)
		return XDP_DROP;
	switch (ctx->ingress_ifindex) {
	case INSIDE:
		return outward(ip, ports, end, &key);
	case OUTSIDE:
		return inward(ip, ports, end, &key);
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
