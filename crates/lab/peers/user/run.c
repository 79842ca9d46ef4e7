/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Runs a function in C, SOURCE, whose entry is ENTRY, on batches of packets. */
#include SOURCE

void user_run(struct user_packet *packets, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct user_packet *packet = &packets[i];
		struct xdp_md ctx = {
			.data = (__u64)packet->data,
			.data_end = (__u64)packet->end,
			.ingress_ifindex = packet->port,
		};

		user_now_ns = packet->time_ns;
		packet->verdict = ENTRY(&ctx);
		packet->target = user_target;
	}
}

void user_free_tables(void)
{
	while (user_tables) {
		struct user_table *table = user_tables;

		user_tables = table->next;
		free(table->slots);
		free(table);
	}
}
