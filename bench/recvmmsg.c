/*
 * The receiver that mpps is measured against: recvmmsg(2) with the 2015 article's parameters and
 * nothing else. One pinned thread, one socket, 1024 messages of 2048 bytes, MSG_WAITFORONE.
 *
 *     recvmmsg ADDRESS PORT CPU
 *
 * SIGINT ends it; it then prints {"received":N,"active_seconds":S}.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 1024
#define BYTES 2048

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

int main(int argc, char **argv)
{
	static char buffers[BATCH][BYTES];
	static struct iovec vectors[BATCH];
	static struct mmsghdr messages[BATCH];
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct sigaction action = { .sa_handler = on_signal };
	unsigned long received = 0;
	double first = 0, last = 0;
	cpu_set_t cpus;

	if (argc != 4)
		return 2;
	address.sin_port = htons(atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &address.sin_addr);
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[3]), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	sigaction(SIGINT, &action, NULL); /* no SA_RESTART: the blocking call must return */

	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("bind");
		return 2;
	}
	for (int i = 0; i < BATCH; i++) {
		vectors[i].iov_base = buffers[i];
		vectors[i].iov_len = BYTES;
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	while (!stop) {
		int count = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL);
		if (count <= 0)
			continue;
		/* Once a call, as mpps does: the rate is from the first to the last packet. */
		last = now();
		if (received == 0)
			first = last;
		received += count;
	}
	printf("{\"received\":%lu,\"active_seconds\":%f}\n", received, last - first);
	return 0;
}
