/* The C side of mpps_os::dpdk.
 *
 * DPDK moves packets by `static inline` functions, so C has to call them. One call a batch, and
 * what Rust needs of each packet in one array. Nothing here decides anything but how to call.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* ---- What the library says ---- */

/* DPDK and its drivers print to stdout and stderr. Both streams, and its log, go here instead; the
 * last words become the text of an error. */
static char said[16384]; /* The usage that follows a bad argument takes 6 of it. */
static size_t said_bytes;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *listener;
static FILE *saved_stdout;
static FILE *saved_stderr;

static ssize_t hear(void *cookie, const char *text, size_t bytes)
{
	size_t room, old;

	(void)cookie;
	pthread_mutex_lock(&said_lock);
	if (bytes >= sizeof(said)) {
		memcpy(said, text + bytes - sizeof(said), sizeof(said));
		said_bytes = sizeof(said);
	} else {
		/* The oldest go first. */
		room = sizeof(said) - said_bytes;
		if (bytes > room) {
			old = bytes - room;
			memmove(said, said + old, said_bytes - old);
			said_bytes -= old;
		}
		memcpy(said + said_bytes, text, bytes);
		said_bytes += bytes;
	}
	pthread_mutex_unlock(&said_lock);
	return bytes;
}

/* Callers are serialised. glibc lets a program assign to `stdout` and `stderr`; Rust's own output
 * goes through neither. */
int mpps_dpdk_listen(void)
{
	cookie_io_functions_t functions = { .write = hear };

	if (listener == NULL) {
		listener = fopencookie(NULL, "w", functions);
		if (listener == NULL)
			return -errno;
		setvbuf(listener, NULL, _IOLBF, 0);
		rte_openlog_stream(listener);
	}
	pthread_mutex_lock(&said_lock);
	said_bytes = 0;
	pthread_mutex_unlock(&said_lock);
	saved_stdout = stdout;
	saved_stderr = stderr;
	stdout = listener;
	stderr = listener;
	return 0;
}

size_t mpps_dpdk_heard(char *text, size_t bytes)
{
	size_t copied;

	stdout = saved_stdout;
	stderr = saved_stderr;
	fflush(listener);
	pthread_mutex_lock(&said_lock);
	copied = RTE_MIN(bytes, said_bytes);
	memcpy(text, said + said_bytes - copied, copied);
	pthread_mutex_unlock(&said_lock);
	return copied;
}

/* ---- The environment and its threads ---- */

int mpps_dpdk_start(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

const char *mpps_dpdk_directory(void)
{
	return rte_eal_get_runtime_dir();
}

/* A thread with a number of its own has a cache of packet buffers. */
int mpps_dpdk_enter_thread(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return -EALREADY;
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void mpps_dpdk_leave_thread(void)
{
	rte_thread_unregister();
}

/* ---- Devices ---- */

struct mpps_dpdk_facts {
	char driver[64];
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint16_t rx_descriptors;
	uint16_t mtu;
	uint8_t is_virtual;
	uint8_t mac[6];
	int socket;
};

static int is_known(const uint16_t *ports, unsigned int count, uint16_t port)
{
	unsigned int at;

	for (at = 0; at < count; at++)
		if (ports[at] == port)
			return 1;
	return 0;
}

/* Adds a device; `port` is its first new port. */
int mpps_dpdk_attach(const char *device, uint16_t *port)
{
	uint16_t before[RTE_MAX_ETHPORTS];
	unsigned int count = 0;
	uint16_t at;
	int status;

	RTE_ETH_FOREACH_DEV(at)
		before[count++] = at;
	status = rte_dev_probe(device);
	if (status < 0)
		return status;
	RTE_ETH_FOREACH_DEV(at) {
		if (!is_known(before, count, at)) {
			*port = at;
			return 0;
		}
	}
	return -ENODEV;
}

int mpps_dpdk_facts(uint16_t port, struct mpps_dpdk_facts *facts)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int status = rte_eth_dev_info_get(port, &info);

	if (status < 0)
		return status;
	memset(facts, 0, sizeof(*facts));
	snprintf(facts->driver, sizeof(facts->driver), "%s", info.driver_name);
	facts->rx_queues_max = info.max_rx_queues;
	facts->tx_queues_max = info.max_tx_queues;
	facts->rx_descriptors = info.default_rxportconf.ring_size;
	facts->is_virtual = strcmp(rte_bus_name(rte_dev_bus(info.device)), "vdev") == 0;
	facts->socket = rte_eth_dev_socket_id(port);
	if (rte_eth_dev_get_mtu(port, &facts->mtu) < 0)
		facts->mtu = RTE_ETHER_MTU;
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(facts->mac, mac.addr_bytes, sizeof(facts->mac));
	return 0;
}

/* Sets the queues up and starts the device. `rx_descriptors` is asked for and becomes what was
 * granted. */
int mpps_dpdk_configure(uint16_t port, uint16_t rx_queues, uint16_t tx_queues,
			uint16_t *rx_descriptors, struct rte_mempool *pool)
{
	struct rte_eth_conf configuration = { 0 };
	struct rte_eth_dev_info info;
	uint16_t tx_descriptors = 1024;
	uint16_t queue;
	int socket = rte_eth_dev_socket_id(port);
	int status = rte_eth_dev_info_get(port, &info);

	if (status < 0)
		return status;
	if (rx_queues > 1 && info.flow_type_rss_offloads != 0) {
		configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		configuration.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
	}
	status = rte_eth_dev_configure(port, rx_queues, tx_queues, &configuration);
	if (status < 0)
		return status;
	status = rte_eth_dev_adjust_nb_rx_tx_desc(port, rx_descriptors, &tx_descriptors);
	if (status < 0)
		return status;
	for (queue = 0; queue < rx_queues; queue++) {
		status = rte_eth_rx_queue_setup(port, queue, *rx_descriptors, socket, NULL, pool);
		if (status < 0)
			return status;
	}
	for (queue = 0; queue < tx_queues; queue++) {
		status = rte_eth_tx_queue_setup(port, queue, tx_descriptors, socket, NULL);
		if (status < 0)
			return status;
	}
	return rte_eth_dev_start(port);
}

int mpps_dpdk_detach(uint16_t port)
{
	struct rte_eth_dev_info info;
	struct rte_device *device = NULL;
	int status;

	if (rte_eth_dev_info_get(port, &info) == 0)
		device = info.device;
	/* Closing goes on whatever stopping says. */
	status = rte_eth_dev_stop(port);
	if (rte_eth_dev_close(port) < 0 && status == 0)
		status = -EIO;
	if (device != NULL && rte_dev_remove(device) < 0 && status == 0)
		status = -EBUSY;
	return status;
}

struct mpps_dpdk_statistics {
	uint64_t missed;
	uint64_t errors;
	uint64_t no_buffer;
};

int mpps_dpdk_statistics(uint16_t port, struct mpps_dpdk_statistics *statistics)
{
	struct rte_eth_stats all;
	int status = rte_eth_stats_get(port, &all);

	if (status < 0)
		return status;
	statistics->missed = all.imissed;
	statistics->errors = all.ierrors;
	statistics->no_buffer = all.rx_nombuf;
	return 0;
}

/* ---- Packet buffers ---- */

struct range {
	uintptr_t first;
	uintptr_t end;
};

static void widen(struct rte_mempool *pool, void *cookie, struct rte_mempool_memhdr *memory,
		  unsigned int at)
{
	struct range *range = cookie;
	uintptr_t first = (uintptr_t)memory->addr;

	(void)pool;
	(void)at;
	range->first = RTE_MIN(range->first, first);
	range->end = RTE_MAX(range->end, first + memory->len);
}

/* A pool of `buffers` with room for `data_bytes`, and the memory that all of them lie in. */
struct rte_mempool *mpps_dpdk_pool(const char *name, unsigned int buffers, uint16_t data_bytes,
				   int socket, void **memory, size_t *memory_bytes, int *error)
{
	struct range range = { .first = UINTPTR_MAX, .end = 0 };
	struct rte_mempool *pool;

	pool = rte_pktmbuf_pool_create(name, buffers, RTE_MEMPOOL_CACHE_MAX_SIZE, 0,
				       RTE_PKTMBUF_HEADROOM + data_bytes, socket);
	if (pool == NULL) {
		*error = rte_errno;
		return NULL;
	}
	rte_mempool_mem_iter(pool, widen, &range);
	*memory = (void *)range.first;
	*memory_bytes = range.end - range.first;
	return pool;
}

void mpps_dpdk_free_pool(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

/* ---- Packets ---- */

struct mpps_dpdk_frame {
	uint32_t offset;
	uint32_t bytes;
	uint32_t wire_bytes;
	uint32_t room;
};

/* A packet in memory that is not the pool's, which some drivers attach, or in a buffer that is not its
 * own, moves into a buffer of the pool. */
static struct rte_mbuf *bring_home(struct rte_mbuf *packet, struct rte_mempool *pool)
{
	struct rte_mbuf *copy = rte_pktmbuf_copy(packet, pool, 0, UINT32_MAX);

	rte_pktmbuf_free(packet);
	return copy;
}

/* Takes up to `count` packets. Packets for which no buffer was left are counted in `lost`. */
uint16_t mpps_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mempool *pool,
			   uintptr_t memory, size_t memory_bytes, struct rte_mbuf **packets,
			   struct mpps_dpdk_frame *frames, uint16_t count, uint64_t *lost)
{
	uint16_t came = rte_eth_rx_burst(port, queue, packets, count);
	uint16_t at, kept = 0;

	for (at = 0; at < came; at++) {
		struct rte_mbuf *packet = packets[at];
		uintptr_t data = rte_pktmbuf_mtod(packet, uintptr_t);

		if (unlikely(data - memory >= memory_bytes || !RTE_MBUF_DIRECT(packet) ||
			     rte_mbuf_refcnt_read(packet) != 1)) {
			packet = bring_home(packet, pool);
			if (packet == NULL) {
				*lost += 1;
				continue;
			}
			data = rte_pktmbuf_mtod(packet, uintptr_t);
		}
		packets[kept] = packet;
		frames[kept].offset = data - memory;
		frames[kept].bytes = rte_pktmbuf_data_len(packet);
		frames[kept].wire_bytes = rte_pktmbuf_pkt_len(packet);
		frames[kept].room = packet->nb_segs > 1 ? 0 :
			rte_pktmbuf_data_len(packet) + rte_pktmbuf_tailroom(packet);
		kept++;
	}
	return kept;
}

/* Sends those of `count` packets that have `bytes` to be sent, from where they lie, and gives the
 * others, and what the device has no room for, back to the pool. Answers how many it took. */
unsigned int mpps_dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **packets,
			    const uint32_t *bytes, unsigned int count)
{
	unsigned int at, asked = 0, sent = 0;
	uint16_t took;

	for (at = 0; at < count; at++) {
		struct rte_mbuf *packet = packets[at];

		if (bytes[at] == 0) {
			rte_pktmbuf_free(packet);
			continue;
		}
		rte_pktmbuf_data_len(packet) = bytes[at];
		rte_pktmbuf_pkt_len(packet) = bytes[at];
		packets[asked++] = packet;
	}
	while (sent < asked) {
		took = rte_eth_tx_burst(port, queue, packets + sent,
					RTE_MIN(asked - sent, UINT16_MAX));
		if (took == 0)
			break;
		sent += took;
	}
	rte_pktmbuf_free_bulk(packets + sent, asked - sent);
	return sent;
}

void mpps_dpdk_release(struct rte_mbuf **packets, unsigned int count)
{
	rte_pktmbuf_free_bulk(packets, count);
}
