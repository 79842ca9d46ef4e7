/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Calls the helper that a packet selects, and writes the kernel's result into the packet.
 *
 * After the Ethernet header: { what, flags, a (2 bytes), b (4 bytes), answer (8 bytes), text (48 bytes) }.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct order {
	__u8 what, flags;
	__s16 a;
	__s32 b;
	__s64 answer;
	__u8 text[48];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 6);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

/* Large, so that four keys are rarely in one bucket: removing the next entry of a bucket does not hide it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u64);
} spare SEC(".maps");

const char words[600] = { [0 ... 589] = 'w' };
const char word[16] = "\x0a\x01\x02w";

/* Declared with 64-bit rounds, where the helper's own declaration has 32 bits. */
static long (*const loop)(__u64 rounds, void *callback, void *ctx, __u64 flags) = (void *)BPF_FUNC_loop;

static __always_inline void note(__u32 at, __u64 answer)
{
	__u64 *place = bpf_map_lookup_elem(&answers, &at);

	if (place)
		*place = answer;
}

struct rounds {
	__u64 sum;
	__u32 stop;
};

static long add(__u32 i, struct rounds *rounds)
{
	rounds->sum = rounds->sum * 3 + i;
	return i == rounds->stop;
}

static long fold(void *map, __u32 *key, __u64 *value, struct rounds *rounds)
{
	/* Entries are visited in no fixed order, so all are visited; only those of an array are ordered. */
	rounds->sum += *key * 31 + *value;
	if (map == (void *)&answers)
		return *key == rounds->stop;
	*value += 1;
	return 0;
}

/* Removes the visited entry, or all others. Both together would show whether two are in one bucket. */
static long spare_one(void *map, __u32 *key, __u64 *value, struct rounds *rounds)
{
	__u32 own = *key, other;
	int i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		other = i;
		if (rounds->stop & 4 ? other == own : other != own)
			bpf_map_delete_elem(&spare, &other);
	}
	rounds->sum += 1;
	return 0;
}

static __always_inline __u64 value_of(struct order *order, int kind)
{
	switch (kind & 3) {
	case 0:
		return order->b;
	case 1:
		return (__u64)words;
	case 2:
		return (__u64)word;
	default:
		return order->answer;
	}
}

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct order *in = data + 14;
	struct rounds rounds = {};
	struct order order;
	char shown[40] = {};
	__u64 values[3];
	long number = -1;
	__s64 answer = 0;
	void *record;

	if ((void *)(in + 1) > end)
		return XDP_PASS;
	__builtin_memcpy(&order, in, sizeof(order));
	switch (order.what % 30) {
	case 0:
		answer = bpf_xdp_adjust_head(ctx, order.a);
		break;
	case 1:
		answer = bpf_xdp_adjust_tail(ctx, order.a);
		break;
	case 2:
		answer = bpf_xdp_adjust_meta(ctx, order.a);
		break;
	case 3:
		answer = bpf_xdp_load_bytes(ctx, order.b, shown, 1 + (order.flags & 31));
		break;
	case 4:
		answer = bpf_xdp_store_bytes(ctx, order.b, order.text, 1 + (order.flags & 31));
		break;
	case 5:
		answer = bpf_csum_diff((__be32 *)order.text, order.flags & 28, (__be32 *)(order.text + 24), order.a & 20, order.b);
		break;
	case 6:
		answer = bpf_csum_diff((__be32 *)order.text, order.flags & 31, (__be32 *)(order.text + 24), order.a & 23, order.b);
		break;
	case 7:
		answer = bpf_strtol((char *)order.text, 1 + (order.flags & 31), order.b & 0x3f, &number);
		break;
	case 8:
		answer = bpf_strtoul((char *)order.text, 1 + (order.flags & 31), order.b & 0x3f, (unsigned long *)&number);
		break;
	case 9:
		answer = bpf_strncmp((char *)order.text, 1 + (order.flags & 31), "0x1f");
		break;
	case 10: {
		static const char format[] = "%d|%08llx|%-6u%%";

		values[0] = order.b;
		values[1] = order.answer;
		values[2] = order.a;
		answer = bpf_snprintf(shown, 1 + (order.flags & 31), format, values, sizeof(values));
		break;
	}
	case 11: {
		static const char format[] = "%+5d %lX %li";

		values[0] = order.b;
		values[1] = order.answer;
		values[2] = order.a;
		answer = bpf_snprintf(shown, sizeof(shown), format, values, sizeof(values));
		break;
	}
	case 12:
		answer = bpf_perf_event_output(ctx, &perf, (__u64)(__u32)order.b | (__u64)(order.a & 127) << 32, order.text,
					       order.flags & 31);
		break;
	case 13:
		answer = bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU | (__u64)(order.a & 127) << 32, order.text,
					       order.flags & 31);
		break;
	case 14:
		answer = bpf_ringbuf_output(&ring, order.text, order.flags & 31, order.b & 7);
		break;
	case 15:
		record = bpf_ringbuf_reserve(&ring, 40, order.flags & 1);
		if (record) {
			__builtin_memcpy(record, order.text, 40);
			if (order.a & 1)
				bpf_ringbuf_submit(record, 0);
			else
				bpf_ringbuf_discard(record, 0);
			answer = 1;
		}
		note(3, bpf_ringbuf_query(&ring, order.b & 3));
		break;
	case 16:
		rounds.stop = order.flags;
		answer = bpf_loop(order.a, add, &rounds, order.b & 15 ? 0 : order.b & 1);
		break;
	case 17: {
		__u32 key = order.flags % 9;
		__u64 value = order.b;

		answer = bpf_map_update_elem(&sums, &key, &value, BPF_ANY);
		rounds.stop = order.a & 3;
		note(3, bpf_for_each_map_elem(&sums, fold, &rounds, order.a & 4));
		note(6, bpf_for_each_map_elem(&answers, fold, &rounds, 0));
		break;
	}
	case 18:
		answer = bpf_xdp_get_buff_len(ctx);
		break;
	case 19:
		answer = bpf_probe_read_kernel(shown, 1 + (order.flags & 31), order.text);
		note(3, bpf_probe_read_kernel_str(shown, 1 + (order.flags & 31), order.text));
		break;
	case 20:
		answer = bpf_probe_read_kernel(shown, order.flags & 31, (void *)order.answer);
		note(3, bpf_probe_read_kernel_str(shown, order.flags & 31, (void *)order.answer));
		break;
	case 21:
		/* The verifier inlines this call, */
		rounds.stop = order.flags;
		answer = loop(order.answer, add, &rounds, 0);
		break;
	case 22:
		/* but not this one. */
		rounds.stop = order.flags;
		answer = loop(order.answer, add, &rounds, order.b);
		break;
	case 23: {
		__u64 value = order.b;
		__u32 key;
		int i;

#pragma unroll
		for (i = 0; i < 4; i++) {
			key = i;
			if (order.flags & 1 << i)
				bpf_map_update_elem(&spare, &key, &value, BPF_ANY);
		}
		rounds.stop = order.a;
		answer = bpf_for_each_map_elem(&spare, spare_one, &rounds, 0);
#pragma unroll
		for (i = 0; i < 4; i++) {
			key = i;
			bpf_map_delete_elem(&spare, &key);
		}
		break;
	}
	case 24:
		values[0] = value_of(&order, order.flags);
		values[1] = value_of(&order, order.flags >> 2);
		values[2] = value_of(&order, order.flags >> 4);
		answer = bpf_trace_printk((char *)order.text, sizeof(order.text), values[0], values[1], values[2]);
		note(3, bpf_trace_vprintk((char *)order.text, sizeof(order.text), values, sizeof(values)));
		break;
	case 25: {
		static const char format[] = "%20pI4|%-9px|%20px";

		values[0] = (__u64)word;
		values[1] = order.b;
		values[2] = order.b;
		answer = bpf_snprintf(shown, 1 + (order.flags & 31), format, values, sizeof(values));
		break;
	}
	case 26: {
		static const char format[] = "%pi4x %c%d";

		values[0] = (__u64)word;
		values[1] = 'a' + (order.b & 15);
		values[2] = order.answer;
		answer = bpf_snprintf(shown, 1 + (order.flags & 31), format, values, sizeof(values));
		break;
	}
	case 27: {
		static const char format[] = "%s|%pks,%5c";

		values[0] = (__u64)words;
		values[1] = (__u64)(word + 3);
		values[2] = 'a';
		if (order.a & 1)
			values[0] = (__u64)(word + 3);
		answer = bpf_snprintf(shown, 1 + (order.flags & 31), format, values, sizeof(values));
		break;
	}
	case 28: {
		static const char format[] = "%08px %6ps|%pBx";

		values[0] = order.b;
		values[1] = order.b & 0xfff;
		values[2] = order.b & 0xf;
		answer = bpf_snprintf(shown, 1 + (order.flags & 31), format, values, sizeof(values));
		break;
	}
	case 29: {
		static const char format[] = "%12pus|%09s,%pI6";

		values[0] = (__u64)word;
		values[1] = (__u64)(word + 3);
		values[2] = (__u64)word;
		answer = bpf_snprintf(shown, 1 + (order.flags & 31), format, values, sizeof(values));
		break;
	}
	}
	note(0, answer);
	note(1, number);
	note(2, rounds.sum);
	note(4, *(__u64 *)shown);
	note(5, *(__u64 *)(shown + 8));
	if (order.what % 30 != 17)
		note(6, *(__u64 *)(shown + 16));
	data = (void *)(long)ctx->data;
	note(7, (void *)(long)ctx->data_end - data + ((data - (void *)(long)ctx->data_meta) << 16));
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
