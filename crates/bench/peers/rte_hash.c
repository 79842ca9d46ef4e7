// SPDX-License-Identifier: Apache-2.0 OR MIT
// The hash table of DPDK as a peer: 16-byte keys, and 16-byte values by position that begin with a counter.

#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KEY_BYTES 16
#define HUGE_PAGE_BYTES (2ul << 20)
#define HEAP "tables"

struct value {
    uint64_t counter;
    uint64_t other;
};

struct table {
    struct rte_hash *hash;
    struct value *values;
};

static int heap_socket;

// Starts DPDK, with a heap of this many bytes for tables on transparent huge pages, which need not be reserved; returns
// a negative number if it cannot.
int peer_start(uint64_t heap_bytes) {
    char *arguments[] = {"bench", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=1", "-m", "64", "--no-huge",
                         NULL};
    if (rte_eal_init(8, arguments) < 0)
        return -1;
    heap_bytes = RTE_ALIGN_CEIL(heap_bytes, HUGE_PAGE_BYTES);
    uint8_t *mapped = mmap(NULL, heap_bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return -1;
    uint8_t *heap = RTE_PTR_ALIGN_CEIL(mapped, HUGE_PAGE_BYTES);
    madvise(heap, heap_bytes, MADV_HUGEPAGE);
    unsigned pages = heap_bytes / HUGE_PAGE_BYTES;
    if (rte_malloc_heap_create(HEAP) < 0 ||
        rte_malloc_heap_memory_add(HEAP, heap, heap_bytes, NULL, pages, HUGE_PAGE_BYTES) < 0)
        return -1;
    heap_socket = rte_malloc_heap_get_socket(HEAP);
    return heap_socket;
}

void peer_free(void *peer) {
    struct table *table = peer;
    rte_hash_free(table->hash);
    rte_free(table->values);
    free(table);
}

void *peer_new(uint32_t entries) {
    static unsigned number;
    char name[RTE_HASH_NAMESIZE];
    snprintf(name, sizeof name, "peer%u", number++);
    struct rte_hash_parameters parameters = {.name = name,
                                             .entries = entries,
                                             .key_len = KEY_BYTES,
                                             .hash_func = rte_hash_crc,
                                             .hash_func_init_val = 0,
                                             .socket_id = heap_socket};
    struct table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return NULL;
    table->hash = rte_hash_create(&parameters);
    table->values = rte_zmalloc_socket("values", (uint64_t)(entries + 1) * sizeof(struct value), 64, heap_socket);
    if (table->hash == NULL || table->values == NULL) {
        peer_free(table);
        return NULL;
    }
    return table;
}

void peer_clear(void *peer) {
    const struct table *table = peer;
    rte_hash_reset(table->hash);
}

// Adds keys with values of zeros; returns how many have no room.
uint64_t peer_add(void *peer, const uint8_t (*keys)[KEY_BYTES], uint64_t count) {
    const struct table *table = peer;
    uint64_t refused = 0;
    for (uint64_t i = 0; i < count; i++) {
        int32_t position = rte_hash_add_key(table->hash, keys[i]);
        if (position < 0)
            refused++;
        else
            table->values[position] = (struct value){0};
    }
    return refused;
}

// Looks keys up one by one, and adds to the counter of each; returns how many are not there.
uint64_t peer_lookup(void *peer, const uint8_t (*keys)[KEY_BYTES], uint64_t count) {
    struct table *table = peer;
    uint64_t absent = 0;
    for (uint64_t i = 0; i < count; i++) {
        int32_t position = rte_hash_lookup(table->hash, keys[i]);
        if (position < 0)
            absent++;
        else
            table->values[position].counter++;
    }
    return absent;
}

// The same in bulks, whose values are loaded before the first is changed.
static inline __attribute__((always_inline)) uint64_t lookup_bulk(void *peer, const uint8_t (*keys)[KEY_BYTES],
                                                                  uint64_t count, uint32_t bulk) {
    struct table *table = peer;
    uint64_t absent = 0;
    for (uint64_t first = 0; first < count; first += bulk) {
        const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
        int32_t positions[RTE_HASH_LOOKUP_BULK_MAX];
        uint32_t number = count - first < bulk ? (uint32_t)(count - first) : bulk;
        for (uint32_t i = 0; i < number; i++)
            pointers[i] = keys[first + i];
        rte_hash_lookup_bulk(table->hash, pointers, number, positions);
        for (uint32_t i = 0; i < number; i++)
            if (positions[i] >= 0)
                rte_prefetch0(&table->values[positions[i]]);
        for (uint32_t i = 0; i < number; i++) {
            if (positions[i] < 0)
                absent++;
            else
                table->values[positions[i]].counter++;
        }
    }
    return absent;
}

uint64_t peer_lookup_bulk_32(void *peer, const uint8_t (*keys)[KEY_BYTES], uint64_t count) {
    return lookup_bulk(peer, keys, count, 32);
}

uint64_t peer_lookup_bulk_64(void *peer, const uint8_t (*keys)[KEY_BYTES], uint64_t count) {
    return lookup_bulk(peer, keys, count, 64);
}

// The bytes that DPDK has allocated for tables.
uint64_t peer_bytes(void) {
    struct rte_malloc_socket_stats stats;
    return rte_malloc_get_socket_stats(heap_socket, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}
