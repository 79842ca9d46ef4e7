/* Calls helpers with what a packet says, and writes into the packet what the kernel answers.
 *
 * Behind the Ethernet header: { what, flags, a as 2 bytes, b as 4 bytes, answer as 8 bytes, 48 bytes of text }.
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
	/* Entries come in no order, so all have to be seen; but those of an array do. */
	rounds->sum += *key * 31 + *value;
	if (map == (void *)&answers)
		return *key == rounds->stop;
	*value += 1;
	return 0;
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
	switch (order.what % 20) {
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
	}
	note(0, answer);
	note(1, number);
	note(2, rounds.sum);
	note(4, *(__u64 *)shown);
	note(5, *(__u64 *)(shown + 8));
	if (order.what % 20 != 17)
		note(6, *(__u64 *)(shown + 16));
	data = (void *)(long)ctx->data;
	note(7, (void *)(long)ctx->data_end - data + ((data - (void *)(long)ctx->data_meta) << 16));
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
