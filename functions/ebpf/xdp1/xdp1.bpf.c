/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counts packets by IP protocol and drops them, as Linux's old sample xdp1 does.
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -c xdp1.bpf.c
 */
#include "../counters.bpf.h"

SEC("xdp")
int xdp1(struct xdp_md *ctx)
{
	count_protocol(ctx);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
