/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The calls of DPDK that the device needs, most of which are inline functions or macros.
 *
 * Packet buffers have 256 bytes of headroom: the private area of each mbuf, which lies right before its buffer, makes
 * up for what DPDK's own headroom lacks.
 *
 *   struct rte_mbuf | private area | DPDK's headroom | packet | tailroom
 *                   ^ buffer       ^ buf_addr
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define HEADROOM 256
#define PRIVATE (HEADROOM - RTE_PKTMBUF_HEADROOM)

/* A packet in its buffer; the same in Rust. */
struct fl_view {
	void *mbuf;
	uint8_t *buffer;
	uint32_t buffer_bytes;
	uint32_t start;
	uint32_t end;
};

/* Counters of a port; the same in Rust. */
struct fl_counters {
	uint64_t rx_missed;
	uint64_t tx_errors;
};

int fl_dpdk_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

const char *fl_dpdk_error(int number)
{
	return rte_strerror(number < 0 ? -number : number);
}

/* Starts the driver of a device; its port, or a negative error number. */
int fl_dpdk_probe(const char *devargs, const char *name)
{
	uint16_t port;
	int answer = rte_dev_probe(devargs);

	if (answer < 0)
		return answer;
	return rte_eth_dev_get_port_by_name(name, &port) < 0 ? -ENODEV : port;
}

void *fl_dpdk_pool(const char *name, uint32_t count, uint16_t room)
{
	return rte_pktmbuf_pool_create(name, count, 0, PRIVATE, room, SOCKET_ID_ANY);
}

uint32_t fl_dpdk_pool_used(void *pool)
{
	return rte_mempool_in_use_count(pool);
}

void fl_dpdk_pool_free(void *pool)
{
	rte_mempool_free(pool);
}

int fl_dpdk_start(uint16_t port, uint16_t rx_entries, uint16_t tx_entries, void *pool)
{
	struct rte_eth_conf conf;
	int answer;

	memset(&conf, 0, sizeof(conf));
	answer = rte_eth_dev_configure(port, 1, 1, &conf);
	if (answer < 0)
		return answer;
	answer = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_entries, &tx_entries);
	if (answer < 0 && answer != -ENOTSUP)
		return answer;
	answer = rte_eth_rx_queue_setup(port, 0, rx_entries, rte_eth_dev_socket_id(port), NULL, pool);
	if (answer < 0)
		return answer;
	answer = rte_eth_tx_queue_setup(port, 0, tx_entries, rte_eth_dev_socket_id(port), NULL);
	if (answer < 0)
		return answer;
	answer = rte_eth_dev_start(port);
	if (answer < 0)
		return answer;
	/* Drivers of captures and rings have no filter. */
	answer = rte_eth_promiscuous_enable(port);
	return answer == -ENOTSUP ? 0 : answer;
}

void fl_dpdk_stop(uint16_t port)
{
	struct rte_eth_dev_info info;
	int known = rte_eth_dev_info_get(port, &info);

	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (known == 0 && info.device != NULL)
		rte_dev_remove(info.device);
}

/* Receives packets; those in several segments that do not fit one are freed and added to `split`. */
uint32_t fl_dpdk_receive(uint16_t port, struct fl_view *views, uint16_t count, uint64_t *split)
{
	struct rte_mbuf *mbufs[count];
	uint16_t received = rte_eth_rx_burst(port, 0, mbufs, count);
	uint32_t kept = 0;

	for (uint16_t i = 0; i < received; i++) {
		struct rte_mbuf *m = mbufs[i];

		if (m->nb_segs > 1 && rte_pktmbuf_linearize(m) < 0) {
			rte_pktmbuf_free(m);
			(*split)++;
			continue;
		}
		views[kept++] = (struct fl_view){
			.mbuf = m,
			.buffer = (uint8_t *)m->buf_addr - PRIVATE,
			.buffer_bytes = m->buf_len + PRIVATE,
			.start = m->data_off + PRIVATE,
			.end = m->data_off + PRIVATE + m->data_len,
		};
	}
	return kept;
}

/* A buffer for a packet of `bytes` bytes; 0 if there is none, or not as large. */
int fl_dpdk_allocate(void *pool, uint32_t bytes, struct fl_view *view)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	if (m == NULL)
		return 0;
	if (bytes > rte_pktmbuf_tailroom(m)) {
		rte_pktmbuf_free(m);
		return 0;
	}
	*view = (struct fl_view){
		.mbuf = m,
		.buffer = (uint8_t *)m->buf_addr - PRIVATE,
		.buffer_bytes = m->buf_len + PRIVATE,
		.start = m->data_off + PRIVATE,
		.end = m->data_off + PRIVATE + bytes,
	};
	return 1;
}

void fl_dpdk_free(void *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

/* Sends packets and returns how many were accepted; the others stay the caller's. A packet that begins in the private
 * area is moved to where the driver can see it, which must be possible. */
uint32_t fl_dpdk_send(uint16_t port, struct fl_view *views, uint16_t count)
{
	struct rte_mbuf *mbufs[count];

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = views[i].mbuf;
		uint32_t bytes = views[i].end - views[i].start;

		if (views[i].start < PRIVATE) {
			memmove(m->buf_addr, views[i].buffer + views[i].start, bytes);
			m->data_off = 0;
			/* A packet that is not accepted comes again. */
			views[i].start = PRIVATE;
			views[i].end = PRIVATE + bytes;
		} else {
			m->data_off = views[i].start - PRIVATE;
		}
		m->data_len = bytes;
		m->pkt_len = bytes;
		m->ol_flags = 0;
		mbufs[i] = m;
	}
	return rte_eth_tx_burst(port, 0, mbufs, count);
}

uint32_t fl_dpdk_room(void)
{
	return PRIVATE;
}

void fl_dpdk_counters(uint16_t port, struct fl_counters *counters)
{
	struct rte_eth_stats stats;

	memset(counters, 0, sizeof(*counters));
	if (rte_eth_stats_get(port, &stats) == 0) {
		counters->rx_missed = stats.imissed + stats.rx_nombuf + stats.ierrors;
		counters->tx_errors = stats.oerrors;
	}
}
