/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The filter in front of an intrusion detection system, after Suricata's: flows that the system has seen enough of go by it
 * and are only counted; the rest is spread over the CPUs that it runs on, both directions of a connection to the same one.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c suricata.bpf.c [-DFLOWS=65536]
 */
#include "../../parse.bpf.h"

#ifndef FLOWS
#define FLOWS 32768
#endif
#define MAX_CPUS 64
#define MAX_PORTS 256

#define TAG_MASK 0x0fff		/* of vlan_hdr.tci: the number of the network */

/* Flows by both tags (0 for none), ports (0 for what has none) and addresses. */
struct flow4 {
	__be32 source;
	__be32 dest;
	__be16 source_port;
	__be16 dest_port;
	__u16 tags[MAX_VLAN_TAGS];
	__u32 proto;
};

struct flow6 {
	struct addr source;
	struct addr dest;
	__be16 source_port;
	__be16 dest_port;
	__u16 tags[MAX_VLAN_TAGS];
	__u64 proto;
};

struct counts {
	__u64 packets;
	__u64 bytes;
};

/* Flows that go by. Who put them here reads the counts, and takes them away when they have been silent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow4);
	__type(value, struct counts);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow6);
	__type(value, struct counts);
} flows6 SEC(".maps");

/* How many CPUs the system runs on; 0 leaves packets where they came. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cpu_count SEC(".maps");

/* Which CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, __u32);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, __u32);
} cpu_map SEC(".maps");

/* By the port that a flow that goes by came in: the port it goes out. 0 drops it, as the kernel has a copy of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

/* Counts a packet of a flow that goes by, and hands it on. */
static __always_inline int bypass(struct xdp_md *ctx, struct counts *counts)
{
	__u32 port = ctx->ingress_ifindex, *peer;

	counts->packets++;
	counts->bytes += ctx->data_end - ctx->data;
	peer = bpf_map_lookup_elem(&peers, &port);
	if (peer && *peer) {
		int verdict = bpf_redirect_map(&out_ports, *peer, XDP_ABORTED);

		/* Else clang makes one call of this and that in spread(), of which nobody can tell the map beforehand. */
		barrier();
		return verdict;
	}
	return XDP_DROP;
}

/* To the CPU of a connection; `mixed` is the same for both of its directions. */
static __always_inline int spread(__u32 mixed)
{
	__u32 zero = 0, index, *count, *cpu;

	count = bpf_map_lookup_elem(&cpu_count, &zero);
	if (!count || !*count)
		return XDP_PASS;
	/* Multiplied, so that every bit counts in the upper ones; those choose. */
	mixed *= 0x9e3779b1;
	mixed ^= mixed >> 15;
	mixed *= 0x85ebca77;
	index = (__u64)mixed * *count >> 32;
	cpu = bpf_map_lookup_elem(&cpus, &index);
	return cpu ? bpf_redirect_map(&cpu_map, *cpu, XDP_PASS) : XDP_PASS;
}

static __always_inline __u32 halves(__u64 bits)
{
	return bits ^ bits >> 32;
}

static __always_inline int filter_ipv4(struct xdp_md *ctx, struct cursor *c, const __u16 *tags)
{
	struct iphdr *ip = parse_ipv4(c);
	struct flow4 key = {};
	struct counts *counts;
	union l4_ports *ports;

	if (!ip)
		return XDP_PASS;
	key.source = ip->saddr;
	key.dest = ip->daddr;
	key.proto = ip->protocol;
	key.tags[0] = tags[0];
	key.tags[1] = tags[1];
	/* All parts of a datagram are one flow, so that it goes by or is looked at as a whole; most of them have no ports. */
	if (!is_fragment(ip)) {
		ports = parse_ports(c, ip->protocol);
		if (ports) {
			key.source_port = ports->source;
			key.dest_port = ports->dest;
		}
	}
	counts = bpf_map_lookup_elem(&flows4, &key);
	if (counts)
		return bypass(ctx, counts);
	return spread(key.source ^ key.dest);
}

static __always_inline int filter_ipv6(struct xdp_md *ctx, struct cursor *c, const __u16 *tags)
{
	struct ipv6hdr *ip = parse_ipv6(c);
	struct flow6 key = {};
	struct counts *counts;
	union l4_ports *ports;

	if (!ip)
		return XDP_PASS;
	key.source = addr_of(&ip->saddr);
	key.dest = addr_of(&ip->daddr);
	key.proto = ip->nexthdr;
	key.tags[0] = tags[0];
	key.tags[1] = tags[1];
	ports = parse_ports(c, ip->nexthdr);
	if (ports) {
		key.source_port = ports->source;
		key.dest_port = ports->dest;
	}
	counts = bpf_map_lookup_elem(&flows6, &key);
	if (counts)
		return bypass(ctx, counts);
	return spread(halves(key.source.high ^ key.dest.high ^ key.source.low ^ key.dest.low));
}

SEC("xdp")
int suricata(struct xdp_md *ctx)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct cursor c = { .pos = eth + 1, .end = (void *)(long)ctx->data_end };
	__u16 tags[MAX_VLAN_TAGS] = {};
	__be16 type;

	if (c.pos > c.end)
		return XDP_PASS;
	type = eth->type;
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_hdr *vlan = c.pos;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		c.pos = vlan + 1;
		if (c.pos > c.end)
			return XDP_PASS;
		tags[i] = bpf_ntohs(vlan->tci) & TAG_MASK;
		type = vlan->encapsulated_proto;
	}
	switch (type) {
	case bpf_htons(ETH_P_IP):
		return filter_ipv4(ctx, &c, tags);
	case bpf_htons(ETH_P_IPV6):
		return filter_ipv6(ctx, &c, tags);
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
