/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts packets by IP protocol, sends UDP back to who sent it and drops the rest, as Linux's old sample xdp2 does.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c xdp2.bpf.c
 */
#include "../counters.bpf.h"
#include "../swap.bpf.h"

SEC("xdp")
int xdp2(struct xdp_md *ctx)
{
	if (count_protocol(ctx) != IPPROTO_UDP)
		return XDP_DROP;
	return swap_macs(ctx) ? XDP_TX : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
