/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts packets by EtherType and sends each back: the example that eHDL is explained with, with the bytes of the
 * EtherType in order (toy_printed.bpf is it as it is printed).
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c toy.bpf.c
 */
#include "../../parse.bpf.h"

enum kind { OTHER, IPV4, IPV6, ARP, KINDS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KINDS);
	__type(key, __u32);
	__type(value, __u64);
} stats SEC(".maps");

SEC("xdp")
int toy(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct eth_hdr *eth = (void *)(long)ctx->data;
	__u32 key = OTHER;
	__u64 *count;

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	if (eth->type == bpf_htons(ETH_P_IP))
		key = IPV4;
	else if (eth->type == bpf_htons(ETH_P_IPV6))
		key = IPV6;
	else if (eth->type == bpf_htons(ETH_P_ARP))
		key = ARP;

	count = bpf_map_lookup_elem(&stats, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
