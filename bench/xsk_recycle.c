/*
 * The receiver that the af_xdp backend is measured against: libxdp's own example of the least that a
 * program can do with a ring. One pinned thread, one socket on queue 0, copy or zero-copy as the
 * driver has it, wake-ups on demand; each frame goes back to the fill ring unread.
 *
 *     xsk_recycle INTERFACE CPU poll|spin|busy [FRAMES]
 *
 * `busy` is SO_PREFER_BUSY_POLL with a budget of 64 packets. libxdp's default program takes every
 * frame of the queue. SIGINT ends it; it then prints {"received":N,"active_seconds":S}.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <xdp/xsk.h>

#define FRAMES_DEFAULT 4096
#define FRAME_BYTES 2048
#define BATCH 64

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void set(int fd, int option, int value)
{
	if (setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)) != 0) {
		perror("setsockopt");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	const __u32 frames = argc > 4 ? atoi(argv[4]) : FRAMES_DEFAULT;
	struct xsk_umem_config umem_config = {
		.fill_size = frames, .comp_size = 2048,
		.frame_size = FRAME_BYTES, .frame_headroom = 0,
	};
	struct xsk_socket_config config = {
		.rx_size = frames, .tx_size = 2048,
		.bind_flags = XDP_USE_NEED_WAKEUP,
	};
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	unsigned long received = 0;
	double first = 0, last = 0;
	__u32 at = 0, index = 0;
	cpu_set_t cpus;

	if (argc != 4 && argc != 5)
		return 2;
	int spins = strcmp(argv[3], "spin") == 0, busy = strcmp(argv[3], "busy") == 0;
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[2]), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	sigaction(SIGINT, &action, NULL);

	void *memory = mmap(NULL, (size_t)frames * FRAME_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED ||
	    xsk_umem__create(&umem, memory, (size_t)frames * FRAME_BYTES, &fill, &completion,
			     &umem_config) != 0 ||
	    xsk_socket__create(&socket, argv[1], 0, umem, &rx, &tx, &config) != 0) {
		perror("xsk");
		return 2;
	}
	int fd = xsk_socket__fd(socket);
	if (busy) {
		set(fd, SO_PREFER_BUSY_POLL, 1);
		set(fd, SO_BUSY_POLL, 20);
		set(fd, SO_BUSY_POLL_BUDGET, BATCH);
	}
	xsk_ring_prod__reserve(&fill, frames, &at);
	for (__u32 frame = 0; frame < frames; frame++)
		*xsk_ring_prod__fill_addr(&fill, at + frame) = (__u64)frame * FRAME_BYTES;
	xsk_ring_prod__submit(&fill, frames);
	fprintf(stderr, "ready\n");

	while (!stop) {
		__u32 count = xsk_ring_cons__peek(&rx, BATCH, &index);
		if (count == 0) {
			struct pollfd ready = { .fd = fd, .events = POLLIN };
			if (busy || (spins && xsk_ring_prod__needs_wakeup(&fill)))
				recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
			else if (!spins)
				poll(&ready, 1, 100);
			continue;
		}
		last = now();
		if (first == 0)
			first = last;
		xsk_ring_prod__reserve(&fill, count, &at);
		for (__u32 one = 0; one < count; one++) {
			const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&rx, index + one);
			*xsk_ring_prod__fill_addr(&fill, at + one) =
				xsk_umem__extract_addr(desc->addr);
		}
		xsk_ring_prod__submit(&fill, count);
		xsk_ring_cons__release(&rx, count);
		received += count;
	}
	printf("{\"received\":%lu,\"active_seconds\":%f}\n", received, last - first);
	xsk_socket__delete(socket);
	xsk_umem__delete(umem);
	return 0;
}
