/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Flows of TCP and UDP over IPv4, without tags: what buckets and address translation know packets by. */
#ifndef FLOWLOOM_FLOW_BPF_H
#define FLOWLOOM_FLOW_BPF_H

#include "../parse.bpf.h"

struct flow_key {
	__be32 source;
	__be32 dest;
	__be16 source_port;
	__be16 dest_port;
	__u32 proto;
};

/* The IP header of a packet that has a flow, and its ports; NULL for what has none, and for fragments. */
static __always_inline struct iphdr *parse_flow(struct xdp_md *ctx, struct flow_key *key, union l4_ports **ports)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct cursor c = { .pos = eth + 1, .end = (void *)(long)ctx->data_end };
	struct iphdr *ip;

	if (c.pos > c.end || eth->type != bpf_htons(ETH_P_IP))
		return NULL;
	ip = parse_ipv4(&c);
	if (!ip || is_fragment(ip))
		return NULL;
	*ports = parse_ports(&c, ip->protocol);
	if (!*ports)
		return NULL;
	*key = (struct flow_key){
		.source = ip->saddr,
		.dest = ip->daddr,
		.source_port = (*ports)->source,
		.dest_port = (*ports)->dest,
		.proto = ip->protocol,
	};
	return ip;
}

#endif
