/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Writes records some bytes of which keep the old contents of the ring buffer, and events of any length.
 *
 * After the Ethernet header: { what, flags, length (2 bytes), value (4 bytes) }.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct order {
	__u8 what, flags;
	__u16 length;
	__u32 value;
};

/* With padding between and after its fields. */
struct padded {
	__u32 first;
	__u64 second;
	__u8 third;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8192);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} other SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[16384]);
} long_one SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} answers SEC(".maps");

static __always_inline void note(__u32 at, __u64 answer)
{
	__u64 *place = bpf_map_lookup_elem(&answers, &at);

	if (place)
		*place = answer;
}

static __always_inline void release(void *record, int submit)
{
	if (submit)
		bpf_ringbuf_submit(record, 0);
	else
		bpf_ringbuf_discard(record, 0);
}

struct burst {
	struct xdp_md *ctx;
	__u8 *bytes;
	__u32 length, written, refused;
};

static long event(__u32 i, struct burst *burst)
{
	__u32 zero = 0;
	__u8 *bytes = bpf_map_lookup_elem(&long_one, &zero);
	long answer;

	if (!bytes)
		return 1;
	bytes[0] = i;
	answer = bpf_perf_event_output(burst->ctx, &perf, BPF_F_CURRENT_CPU, bytes, burst->length & 16383);
	if (!answer)
		burst->written++;
	else
		burst->refused += answer;
	return burst->written == 200;
}

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct order *in = data + 14, order;
	struct padded *padded, *later;
	struct burst burst = {};
	char text[128] = {};
	__u64 *words;

	if ((void *)(in + 1) > end)
		return XDP_PASS;
	order = *in;
	switch (order.what % 6) {
	case 0:
		padded = bpf_ringbuf_reserve(&ring, sizeof(*padded), 0);
		note(0, !!padded);
		if (!padded)
			break;
		padded->first = order.value;
		padded->second = order.length;
		padded->third = order.flags;
		release(padded, order.flags & 1);
		break;
	case 1:
		words = bpf_ringbuf_reserve(&ring, 104, 0);
		note(0, !!words);
		if (!words)
			break;
		words[order.length & 7] = ((__u64)order.value << 32) + order.value;
		words[5 + (order.value & 7)] += 1;
		release(words, order.flags & 3);
		break;
	case 2:
		words = bpf_ringbuf_reserve(&other, 1500, 0);
		note(0, !!words);
		if (words)
			release(words, order.flags & 3);
		words = bpf_ringbuf_reserve(&other, 29, 0);
		note(1, !!words);
		if (words)
			release(words, order.flags & 12);
		break;
	case 3:
		text[0] = order.value;
		text[order.flags & 127] = order.flags;
		note(0, bpf_ringbuf_output(&ring, text, order.length & 127, 0));
		note(1, bpf_ringbuf_output(&other, text, order.value & 127, 0));
		break;
	case 4:
		padded = bpf_ringbuf_reserve(&ring, sizeof(*padded), 0);
		if (!padded)
			break;
		later = bpf_ringbuf_reserve(&ring, sizeof(*later) + 4, 0);
		note(0, !!later);
		padded->third = order.flags;
		if (later) {
			later->first = order.value;
			release(later, order.flags & 2);
		}
		release(padded, order.flags & 4);
		break;
	case 5:
		burst.ctx = ctx;
		burst.length = order.length;
		bpf_loop(order.flags, event, &burst, 0);
		note(0, burst.written);
		note(1, burst.refused);
		break;
	}
	note(2, bpf_ringbuf_query(&ring, BPF_RB_PROD_POS));
	note(3, bpf_ringbuf_query(&other, BPF_RB_PROD_POS));
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
