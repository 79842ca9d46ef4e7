/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A function in the kernel by libbpf: one call runs it many times on packets of flows that driver.bpf.c writes, by
 * BPF_PROG_TEST_RUN. Errors are negative; peer_open writes a message.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define LOOPBACK 1
#define COUNTED_AT_ONCE 4096

/* As in driver.bpf.c. */
struct control {
	__u32 next;
	__u32 mask;
	__u32 in_turn;
	__u32 target;
};

struct peer {
	struct bpf_object *driver;
	struct bpf_object *function;
	struct control *control;
	int program;
	int flows;
};

static char message[4096];

static int keep(enum libbpf_print_level level, const char *format, va_list arguments)
{
	size_t used = strlen(message);

	if (level == LIBBPF_WARN && used + 1 < sizeof(message))
		vsnprintf(message + used, sizeof(message) - used, format, arguments);
	return 0;
}

const char *peer_message(void)
{
	return message;
}

static void *mapped(int map, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);

	return at == MAP_FAILED ? NULL : at;
}

void peer_close(struct peer *peer)
{
	if (!peer)
		return;
	bpf_object__close(peer->function);
	bpf_object__close(peer->driver);
	free(peer);
}

/* Loads both; `entries` is the capacity of the table of flows, `order` has a power of 2 of flows. */
struct peer *peer_open(const char *driver, const char *function, __u32 entries, const __u64 *order, __u32 order_len)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	struct bpf_map *map;
	void *at;
	int target;

	message[0] = 0;
	libbpf_set_print(keep);
	if (!peer)
		return NULL;
	peer->driver = bpf_object__open_file(driver, NULL);
	peer->function = bpf_object__open_file(function, NULL);
	if (!peer->driver || !peer->function)
		goto failed;
	map = bpf_object__find_map_by_name(peer->driver, "order");
	if (!map || bpf_map__set_max_entries(map, order_len))
		goto failed;
	map = bpf_object__find_map_by_name(peer->function, "flows");
	if (!map || bpf_map__set_max_entries(map, entries))
		goto failed;
	if (bpf_object__load(peer->driver) || bpf_object__load(peer->function))
		goto failed;
	peer->flows = bpf_map__fd(map);
	peer->program = bpf_program__fd(bpf_object__find_program_by_name(peer->driver, "driver"));

	target = bpf_program__fd(bpf_object__find_program_by_name(peer->driver, "empty"));
	map = bpf_object__find_map_by_name(peer->driver, "targets");
	for (__u32 index = 0; index < 2; index++) {
		if (bpf_map_update_elem(bpf_map__fd(map), &index, &target, 0))
			goto failed;
		target = bpf_program__fd(bpf_object__next_program(peer->function, NULL));
	}
	map = bpf_object__find_map_by_name(peer->driver, "order");
	at = mapped(bpf_map__fd(map), (size_t)order_len * sizeof(*order));
	if (!at)
		goto failed;
	memcpy(at, order, (size_t)order_len * sizeof(*order));
	munmap(at, (size_t)order_len * sizeof(*order));
	map = bpf_object__find_map_by_name(peer->driver, "control");
	peer->control = mapped(bpf_map__fd(map), sizeof(*peer->control));
	if (!peer->control)
		goto failed;
	peer->control->mask = order_len - 1;

	/* All ports lead to the same interface: packets of test runs do not leave. */
	map = bpf_object__find_map_by_name(peer->function, "out_ports");
	for (__u32 port = 0; map && port < bpf_map__max_entries(map); port++) {
		__u32 interface = LOOPBACK;

		if (bpf_map_update_elem(bpf_map__fd(map), &port, &interface, 0))
			goto failed;
	}
	return peer;
failed:
	if (!message[0])
		snprintf(message, sizeof(message), "%s", strerror(errno));
	peer_close(peer);
	return NULL;
}

/* Runs the packets of `repeat` flows, in turn from the first one or in the order; returns the mean time of one in ns. */
int peer_run(struct peer *peer, __u32 target, __u32 in_turn, const void *packet, __u32 bytes, __u32 repeat,
	     __u32 *verdict)
{
	LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet, .data_size_in = bytes, .repeat = repeat);
	__u32 next = peer->control->next;
	int error;

	peer->control->target = target;
	peer->control->in_turn = in_turn;
	if (in_turn)
		peer->control->next = 0;
	error = bpf_prog_test_run_opts(peer->program, &options);
	if (in_turn)
		peer->control->next = next;
	if (error)
		return error;
	*verdict = options.retval;
	return options.duration;
}

/* The entries of the table of flows. */
long peer_entries(struct peer *peer)
{
	char keys[COUNTED_AT_ONCE * 64], values[COUNTED_AT_ONCE * 64], at[64];
	__u32 count;
	long entries = 0;
	int error;
	void *from = NULL;

	do {
		count = COUNTED_AT_ONCE;
		error = bpf_map_lookup_batch(peer->flows, from, at, keys, values, &count, NULL);
		if (error && errno != ENOENT)
			return -errno;
		entries += count;
		from = at;
	} while (!error);
	return entries;
}
