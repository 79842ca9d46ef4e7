/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Back to who sent it: the addresses of Ethernet change places. */
#ifndef FLOWLOOM_SWAP_BPF_H
#define FLOWLOOM_SWAP_BPF_H

#include "../parse.bpf.h"

/* An address in three words: that many loads and stores copy one. */
struct mac {
	__u16 words[ETH_ALEN / 2];
};

static __always_inline void swap(struct eth_hdr *eth)
{
	struct mac *dest = (void *)eth->dest, *source = (void *)eth->source;
	struct mac was = *dest;

	*dest = *source;
	*source = was;
}

/* Whether there was a header. */
static __always_inline bool swap_macs(struct xdp_md *ctx)
{
	struct eth_hdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return false;
	swap(eth);
	return true;
}

#endif
