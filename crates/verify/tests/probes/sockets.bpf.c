/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Maps of AF_XDP sockets: the result of a lookup is written into the packet, then the packet is redirected.
 *
 * The packet: { key, flags, ... }; the queue found, or 0xff, is written to byte 2.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	__u32 key, flags, *queue;

	if ((void *)(data + 4) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	key = data[0] % 8;
	flags = data[1] % 32;
	queue = bpf_map_lookup_elem(&sockets, &key);
	data[2] = queue ? *queue : 0xff;
	return bpf_redirect_map(&sockets, key, flags);
}

char LICENSE[] SEC("license") = "GPL";
