/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Simple firewall: from outside, UDP over IPv4 comes in only where the same flow went out before.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c simple_firewall.bpf.c [-DINSIDE=3 -DOUTSIDE=4 -DFLOWS=65536]
 */
#include "../../parse.bpf.h"

/* The ports of the two networks. */
#ifndef INSIDE
#define INSIDE 1
#endif
#ifndef OUTSIDE
#define OUTSIDE 2
#endif
#ifndef FLOWS
#define FLOWS 1024
#endif

/* Both directions have the same key: the end with the smaller address, as its bytes are read, comes first. */
struct flow_key {
	__be32 low;
	__be32 high;
	__be16 low_port;
	__be16 high_port;
	__u32 proto;
};

struct flow {
	__u32 port;		/* by which its first packet came */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} out_ports SEC(".maps");

SEC("xdp")
int simple_firewall(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct flow_key key = {};

	if ((void *)(udp + 1) > end)
		return XDP_DROP;
	/* With options, the ports would lie elsewhere; in fragments, none or not all of them do; behind its end, padding lies. */
	if (eth->type != bpf_htons(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
	    is_fragment(ip) || bpf_ntohs(ip->tot_len) < sizeof(*ip) + sizeof(*udp))
		return XDP_DROP;

	key.proto = IPPROTO_UDP;
	if (ip->saddr < ip->daddr || (ip->saddr == ip->daddr && udp->source < udp->dest)) {
		key.low = ip->saddr;
		key.high = ip->daddr;
		key.low_port = udp->source;
		key.high_port = udp->dest;
	} else {
		key.low = ip->daddr;
		key.high = ip->saddr;
		key.low_port = udp->dest;
		key.high_port = udp->source;
	}

	if (ctx->ingress_ifindex == INSIDE) {
		if (!bpf_map_lookup_elem(&flows, &key)) {
			struct flow flow = { .port = INSIDE };

			/* A flow that there is no room for goes out, and is not answered. */
			bpf_map_update_elem(&flows, &key, &flow, BPF_ANY);
		}
		return bpf_redirect_map(&out_ports, OUTSIDE, XDP_ABORTED);
	}
	if (ctx->ingress_ifindex != OUTSIDE || !bpf_map_lookup_elem(&flows, &key))
		return XDP_DROP;
	return bpf_redirect_map(&out_ports, INSIDE, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
