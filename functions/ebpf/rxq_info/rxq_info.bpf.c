/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts packets by receive queue, after Linux's sample xdp_rxq_info: whether they reach the queues, and how many of them the
 * program keeps up with on each CPU.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c rxq_info.bpf.c [-DQUEUES=128]
 */
#include "../swap.bpf.h"

#ifndef QUEUES
#define QUEUES 64
#endif

enum option {
	READ = 1,		/* look into the packet */
	SWAP = 2,		/* exchange the addresses of Ethernet */
};

struct config {
	__u32 verdict;		/* what becomes of packets */
	__u32 port;		/* that packets must come by */
	__u32 options;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct counts {
	__u64 processed;
	__u64 wrong;		/* by another port than the one that was meant, or another queue than there are */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} all SEC(".maps");

/* By queue; the last is for queues beyond. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, QUEUES + 1);
	__type(key, __u32);
	__type(value, struct counts);
} queues SEC(".maps");

SEC("xdp")
int rxq_info(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct eth_hdr *eth = (void *)(long)ctx->data;
	struct counts *sum, *queue;
	struct config *config;
	__u32 zero = 0, key;

	if ((void *)(eth + 1) > end)
		return XDP_ABORTED;
	config = bpf_map_lookup_elem(&configs, &zero);
	sum = bpf_map_lookup_elem(&all, &zero);
	if (!config || !sum)
		return XDP_ABORTED;

	sum->processed++;
	if (ctx->ingress_ifindex != config->port) {
		sum->wrong++;
		return XDP_ABORTED;
	}
	key = ctx->rx_queue_index;
	if (key >= QUEUES)
		key = QUEUES;
	queue = bpf_map_lookup_elem(&queues, &key);
	if (!queue)
		return XDP_ABORTED;
	queue->processed++;
	if (key == QUEUES)
		queue->wrong++;

	if (config->options & READ && eth->type == bpf_htons(ETH_P_LOOPBACK))
		return XDP_DROP;
	if (config->options & SWAP)
		swap(eth);
	return config->verdict;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
