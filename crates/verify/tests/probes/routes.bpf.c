/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Looks up a route and an MTU with the arguments in a packet.
 *
 * After the Ethernet header, 4 bytes each: { flags of the route, interface of the MTU and 2 unused bytes, MTU length,
 * difference, results of both }, then struct bpf_fib_lookup.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct order {
	__u8 flags, interface;
	__u16 none;
	__u32 length;
	__s32 difference;
	__s32 route, mtu;
	struct bpf_fib_lookup lookup;
} __attribute__((packed));

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct order *in = data + 14;
	struct bpf_fib_lookup lookup;
	__u32 length;

	if ((void *)(in + 1) > end)
		return XDP_PASS;
	__builtin_memcpy(&lookup, &in->lookup, sizeof(lookup));
	in->route = bpf_fib_lookup(ctx, &lookup, sizeof(lookup), in->flags);
	__builtin_memcpy(&in->lookup, &lookup, sizeof(lookup));
	length = in->length;
	in->mtu = bpf_check_mtu(ctx, in->interface, &length, in->difference, 0);
	in->length = length;
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
