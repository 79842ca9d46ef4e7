/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The helpers and maps of functions in C, for user space.
 *
 * A hash map is a table with open addressing and linear probing, at most half full, with keys and values in its slots;
 * the compiler specialises it for the sizes of keys and values. As in the kernel, an entry does not move while its
 * address is in use: only deletions move entries, and functions hold no address across one.
 */
#ifndef USER_BPF_HELPERS_H
#define USER_BPF_HELPERS_H

#include <stdlib.h>
#include <string.h>
#include <linux/bpf.h>

#define SEC(name)
#define __always_inline inline __attribute__((always_inline))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define barrier_var(var) asm volatile("" : "+r"(var))

struct user_packet {
	__u8 *data;
	__u8 *end;
	__u64 time_ns;
	__u32 port;
	__u32 verdict;
	__u32 target;
};

static __u64 user_now_ns;
static __u32 user_target;

#define bpf_ktime_get_ns() user_now_ns
#define bpf_redirect_map(map, port, otherwise) (user_target = (port), XDP_REDIRECT)

struct user_table {
	__u64 mask;
	__u64 entries;
	__u8 *slots;
	struct user_table *next;
};

static struct user_table *user_tables;

static __always_inline __u64 user_hash(const void *key, size_t bytes)
{
	__u64 hash = 0x9e3779b97f4a7c15ULL ^ bytes;

	for (size_t at = 0; at < bytes; at += 8) {
		__u64 word = 0;
		unsigned __int128 product;

		memcpy(&word, (const __u8 *)key + at, bytes - at < 8 ? bytes - at : 8);
		product = (unsigned __int128)(hash ^ word) * 0xa0761d6478bd642fULL;
		hash = (__u64)product ^ (__u64)(product >> 64);
	}
	return hash;
}

/* The table is created at its first use; the map's variable, which has no other contents, begins with its address. */
static __attribute__((noinline)) struct user_table *user_create(struct user_table **at, size_t slot, __u64 most)
{
	struct user_table *table = calloc(1, sizeof(*table));
	__u64 slots = 16;

	while (slots < 2 * most)
		slots *= 2;
	if (!table || !(table->slots = aligned_alloc(64, (slots * slot + 63) / 64 * 64)))
		abort();
	memset(table->slots, 0, slots * slot);
	table->mask = slots - 1;
	table->next = user_tables;
	user_tables = table;
	return *at = table;
}

/* A slot: a word that is 1 if it is used, the value, the key. */
static __always_inline __u8 *user_find(struct user_table *table, const void *key, size_t key_bytes, size_t value_bytes,
				       size_t slot, bool *found)
{
	for (__u64 at = user_hash(key, key_bytes);; at++) {
		__u8 *place = table->slots + (at & table->mask) * slot;

		if (!*(__u64 *)place) {
			*found = false;
			return place;
		}
		if (!memcmp(place + 8 + value_bytes, key, key_bytes)) {
			*found = true;
			return place;
		}
	}
}

static __always_inline void *user_lookup(struct user_table **map, const void *key, size_t key_bytes,
					 size_t value_bytes, size_t slot, __u64 most)
{
	struct user_table *table = *map ?: user_create(map, slot, most);
	bool found;
	__u8 *place = user_find(table, key, key_bytes, value_bytes, slot, &found);

	return found ? place + 8 : NULL;
}

static __always_inline long user_update(struct user_table **map, const void *key, const void *value, size_t key_bytes,
					size_t value_bytes, size_t slot, __u64 most, __u64 flags)
{
	struct user_table *table = *map ?: user_create(map, slot, most);
	bool found;
	__u8 *place = user_find(table, key, key_bytes, value_bytes, slot, &found);

	if (found ? (flags & 3) == BPF_NOEXIST : (flags & 3) == BPF_EXIST || table->entries == most)
		return -1;
	table->entries += !found;
	*(__u64 *)place = 1;
	memcpy(place + 8, value, value_bytes);
	memcpy(place + 8 + value_bytes, key, key_bytes);
	return 0;
}

static __always_inline long user_delete(struct user_table **map, const void *key, size_t key_bytes, size_t value_bytes,
					size_t slot, __u64 most)
{
	struct user_table *table = *map ?: user_create(map, slot, most);
	bool found;
	__u8 *hole = user_find(table, key, key_bytes, value_bytes, slot, &found);
	__u64 at;

	if (!found)
		return -1;
	table->entries--;
	/* Later entries of the run close the gap, unless they would come before their first slot. */
	at = (hole - table->slots) / slot;
	for (__u64 next = (at + 1) & table->mask;; next = (next + 1) & table->mask) {
		__u8 *place = table->slots + next * slot;
		__u64 home;

		if (!*(__u64 *)place)
			break;
		home = user_hash(place + 8 + value_bytes, key_bytes) & table->mask;
		if (((next - home) & table->mask) < ((next - at) & table->mask))
			continue;
		memcpy(table->slots + at * slot, place, slot);
		at = next;
	}
	*(__u64 *)(table->slots + at * slot) = 0;
	return 0;
}

#define USER_SIZES(map) sizeof(*(map)->key), sizeof(*(map)->value), \
	((8 + sizeof(*(map)->key) + sizeof(*(map)->value) + 7) & ~7UL), sizeof(*(map)->max_entries) / sizeof(int)
#define bpf_map_lookup_elem(map, key_at) user_lookup((void *)(map), (key_at), USER_SIZES(map))
#define bpf_map_update_elem(map, key_at, value_at, flags) \
	user_update((void *)(map), (key_at), (value_at), USER_SIZES(map), (flags))
#define bpf_map_delete_elem(map, key_at) user_delete((void *)(map), (key_at), USER_SIZES(map))

#endif
