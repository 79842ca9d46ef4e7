/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Executes the map operations in a packet, and writes the kernel's results into the packet.
 *
 * After the Ethernet header: up to 12 operations of 8 bytes, { what, key, flags, value, answer (4 bytes) }.
 * KIND, FLAGS, ENTRIES, KEY (0 index, 1 word, 2 prefix), LOCK: definition of the map.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct order {
	__u8 what, key, flags, value;
	__s32 answer;
};

struct prefix {
	__u32 len;
	__u8 address[4];
};

#if KEY == 2
typedef struct prefix key_t;
#else
typedef __u32 key_t;
#endif

struct value {
#if LOCK
	struct bpf_spin_lock lock;
#endif
	__u32 number;
};

struct {
	__uint(type, KIND);
	__uint(map_flags, FLAGS);
	__uint(max_entries, ENTRIES);
	__type(key, key_t);
	__type(value, struct value);
} table SEC(".maps");

static __always_inline void make(key_t *key, __u8 byte)
{
#if KEY == 2
	key->len = byte % 37;
	key->address[0] = byte & 0x80 ? 10 : 172;
	key->address[1] = byte & 0x40 ? 255 : 0;
	key->address[2] = byte << 3;
	key->address[3] = byte;
#elif KEY == 1
	*key = byte % 11 * 0x01010101;
#else
	*key = byte % (ENTRIES + 2);
#endif
}

static __always_inline __s32 follow(struct order *order)
{
	struct value value = { .number = order->value }, *found;
	key_t key;

	make(&key, order->key);
	switch (order->what % 6) {
	case 0:
	case 1:
		return bpf_map_update_elem(&table, &key, &value, order->flags % 8);
	case 2:
		return bpf_map_delete_elem(&table, &key);
	case 3:
		return bpf_map_update_elem(&table, &key, &value, 0);
	}
	found = bpf_map_lookup_elem(&table, &key);
	if (!found)
		return -1000;
#if LOCK
	bpf_spin_lock(&found->lock);
	found->number += order->value;
	bpf_spin_unlock(&found->lock);
#else
	if (order->what % 6 == 5)
		__sync_fetch_and_add(&found->number, order->value);
#endif
	return found->number;
}

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	__u32 i, at = 14;

	for (i = 0; i < 12; i++) {
		void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
		struct order *order = data + at;

		if ((void *)(order + 1) > end)
			break;
		order->answer = follow(order);
		at += sizeof(*order);
	}
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
